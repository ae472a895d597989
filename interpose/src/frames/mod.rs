//! Finds in the process what `gputrace_callstack` reads frames from: the interpreter, PyTorch, unloaded code.
//!
//! | file | noun |
//! |---|---|
//! | `python` | whether Python's frames are recorded, and where the interpreter is |
//! | `native` | whether native frames are recorded, and what their reader must know |
//! | `torch/` | PyTorch's backward passes when they begin, its operators, the blocks of its allocator |

pub mod native;
pub mod python;
pub mod torch;
