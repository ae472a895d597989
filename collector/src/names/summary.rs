//! Summaries of template arguments that are too many to show.

use crate::names::literal::{is_number, literal};
use crate::names::path::{NameNode, PathPart, without_qualifiers};
use crate::names::vocabulary as known;

/// The most descriptive items in a tree of arguments, searched in order.
#[derive(Default)]
pub struct Summary<'n, 'a> {
    /// The path of the lambda that does the work.
    pub work: Option<&'n [PathPart<'a>]>,
    /// The shape of a matrix kernel's block.
    pub tile: Option<String>,
    /// The element types.
    pub elements: Vec<&'static str>,
    visited: usize,
}

impl<'n, 'a> Summary<'n, 'a> {
    const VISITED_MAX: usize = 200;
    const ELEMENTS_MAX: usize = 3;

    pub fn of(args: &[&'n NameNode<'a>]) -> Summary<'n, 'a> {
        let mut summary = Summary::default();
        for arg in args {
            summary.visit(arg);
        }
        if summary.work.is_some() {
            summary.elements.clear();
        }
        summary
    }

    fn visit(&mut self, node: &'n NameNode<'a>) {
        self.visited += 1;
        if self.visited > Self::VISITED_MAX || self.work.is_some() || known::is_plumbing(node) {
            return;
        }
        let parts = match node {
            NameNode::Text(text) => return self.element(without_qualifiers(text).0),
            NameNode::Path { parts, .. } => parts,
        };
        let Some(own) = parts.last() else { return };
        if parts.iter().any(PathPart::is_lambda) {
            self.work = Some(parts);
            return;
        }
        if let Some(shape) = shape(own) {
            if self.tile.is_none() && is_tile(&shape) {
                self.tile = Some(shape);
            }
            return;
        }
        if own.args.is_empty() {
            self.element(own.name);
        }
        for arg in parts.iter().rev().flat_map(|part| &part.args) {
            self.visit(arg);
        }
    }

    fn element(&mut self, name: &str) {
        if let Some(element) = known::element(name)
            && self.elements.len() < Self::ELEMENTS_MAX
            && !self.elements.contains(&element)
        {
            self.elements.push(element);
        }
    }
}

/// Whether a shape is a tile. Clusters of thread blocks are shapes too, but small ones.
fn is_tile(shape: &str) -> bool {
    const SMALLEST: u32 = 16;
    shape.contains('x') && shape.split('x').any(|side| side.parse().is_ok_and(|side: u32| side >= SMALLEST))
}

/// A list of numbers as 128x64x32.
pub fn shape(part: &PathPart<'_>) -> Option<String> {
    if !known::is_shape(part.name) || part.args.is_empty() {
        return None;
    }
    Some(part.args.iter().map(size).collect::<Option<Vec<_>>>()?.join("x"))
}

/// A number, or a type that stands for one.
fn size(node: &NameNode<'_>) -> Option<String> {
    match node {
        NameNode::Text(text) if is_number(node) => Some(literal(text)),
        NameNode::Text(_) => None,
        NameNode::Path { parts, .. } => {
            let own = parts.last().filter(|own| known::is_number_type(own.name))?;
            size(own.args.last()?)
        }
    }
}
