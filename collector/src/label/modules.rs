//! PyTorch's modules in a stack: `LlamaModel`, `LlamaDecoderLayer`, `LlamaAttention`.
//!
//! PyTorch calls every module through `Module._call_impl`, which stacks show as one frame. The module's class
//! is in the qualified name of its `forward`, the next frame or, where hooks or decorators lie between, one
//! before the next such call. Qualified names are there from CPython 3.11 on.

use crate::label::machinery::{AUTOGRAD, MODULE_CALL};
use crate::label::{StackFrame, StackNames};

const METHOD: &str = ".forward";

/// A module that a stack is inside of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModuleFrame<'s> {
    /// The index of the frame of its `forward`.
    pub at: usize,
    pub class: &'s str,
}

/// The modules that these frames are inside of, outermost first.
pub fn modules<'s>(stacks: &'s StackNames<'_>, frames: &[StackFrame]) -> Vec<ModuleFrame<'s>> {
    let mut found = Vec::new();
    let mut is_called = false;
    for (at, frame) in frames.iter().enumerate() {
        if matches!(frame, StackFrame::Named(text) if &**text == MODULE_CALL) {
            is_called = true;
            continue;
        }
        let Some(line) = stacks.line(frame) else { continue };
        if let Some(class) = class_of(&line.function).filter(|_| is_called) {
            found.push(ModuleFrame { at, class });
            is_called = false;
        }
    }
    found
}

/// Whether these are the frames of a backward pass.
pub fn is_backward(frames: &[StackFrame]) -> bool {
    frames.iter().any(|frame| matches!(frame, StackFrame::Named(text) if &**text == AUTOGRAD))
}

/// `Net` of `Net.forward`, also where the class was made in a function: `build.<locals>.Net.forward`.
fn class_of(function: &str) -> Option<&str> {
    let class = function.strip_suffix(METHOD)?;
    let class = class.rsplit("<locals>.").next().unwrap_or(class);
    (!class.is_empty()).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_is_in_the_name_of_its_forward() {
        assert_eq!(class_of("LlamaMLP.forward"), Some("LlamaMLP"));
        assert_eq!(class_of("build.<locals>.Net.forward"), Some("Net"));
        assert_eq!(class_of("Outer.Inner.forward"), Some("Outer.Inner"));
        for none in ["forward", ".forward", "Net.forward_once", "Net.forward.<locals>.part", ""] {
            assert_eq!(class_of(none), None, "{none}");
        }
    }
}
