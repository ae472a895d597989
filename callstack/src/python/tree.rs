//! The tree in which a Python context stores its variables (a hash array mapped trie), read in place.
//!
//! Its nodes have three types without exported symbols, which are recognised by their names. A tree is
//! never changed: setting a variable makes a new tree, which shares nodes with the old one.

use core::sync::atomic::{AtomicU64, Ordering};

use super::memory::Memory;
use super::objects::Objects;
use super::walk::Damaged;

/// Bits of the hash for each level, and the number of levels.
const LEVEL_BITS: u32 = 5;
const LEVELS: usize = 7;
/// How many variables are searched for one whose hash is not known.
const SEARCHED_MAX: u32 = 64;
/// How many variables with the same hash are searched.
const COLLISIONS_MAX: u64 = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Node {
    /// Some of the 32 children: a bit map, then pairs.
    Bitmap,
    /// All 32 children, each a node or null.
    Array,
    /// Variables with the same hash.
    Collision,
}

const NODES: [(Node, &[u8]); 3] = [
    (Node::Bitmap, b"hamt_bitmap_node"),
    (Node::Array, b"hamt_array_node"),
    (Node::Collision, b"hamt_collision_node"),
];
/// The types of these nodes, once one was met. They are static objects of the interpreter.
static TYPES: [AtomicU64; NODES.len()] = [const { AtomicU64::new(0) }; NODES.len()];

#[inline(always)]
fn node<M: Memory>(objects: &Objects<'_, M>, at: u64) -> Result<Node, Damaged> {
    let of = objects.type_of(at)?;
    for (known, (node, _)) in TYPES.iter().zip(NODES) {
        if known.load(Ordering::Relaxed) == of {
            return Ok(node);
        }
    }
    by_name(objects, of)
}

#[cold]
#[inline(never)]
fn by_name<M: Memory>(objects: &Objects<'_, M>, of: u64) -> Result<Node, Damaged> {
    for (known, (node, name)) in TYPES.iter().zip(NODES) {
        if objects.type_is_named(of, name)? {
            known.store(of, Ordering::Relaxed);
            return Ok(node);
        }
    }
    Err(Damaged)
}

/// The hash under which the tree stores a variable.
pub fn hash_of<M: Memory>(objects: &Objects<'_, M>, variable: u64) -> Result<u32, Damaged> {
    let hash = objects.word(variable, objects.layout.variable_hash.into())?;
    let folded = hash as u32 ^ (hash >> 32) as u32;
    Ok(if folded == u32::MAX { u32::MAX - 1 } else { folded })
}

/// The value of a variable; 0 if the tree does not have it.
#[inline(always)]
pub fn find<M: Memory>(
    objects: &Objects<'_, M>,
    tree: u64,
    variable: u64,
    hash: u32,
) -> Result<u64, Damaged> {
    let mut at = objects.field(tree, 0)?;
    let mut rest = hash;
    for _ in 0..LEVELS {
        let bit = 1u32 << (rest & 31);
        match node(objects, at)? {
            Node::Bitmap => {
                let map = objects.half(at, objects.after_size())?;
                if map & bit == 0 {
                    return Ok(0);
                }
                let pair = u64::from((map & (bit - 1)).count_ones());
                let (key, value) = pair_of(objects, at, pair)?;
                if key != 0 {
                    return Ok(if key == variable { value } else { 0 });
                }
                at = value;
            }
            Node::Array => {
                at = objects.word(at, objects.head() + 8 * u64::from(rest & 31))?;
                if at == 0 {
                    return Ok(0);
                }
            }
            Node::Collision => {
                let words = objects.size(at)?.min(2 * COLLISIONS_MAX);
                for pair in 0..words / 2 {
                    let (key, value) = pair_of(objects, at, pair)?;
                    if key == variable {
                        return Ok(value);
                    }
                }
                return Ok(0);
            }
        }
        rest >>= LEVEL_BITS;
    }
    Ok(0)
}

/// What was seen of a tree: its size, its root, and a fingerprint of everything that the root points to. Of
/// trees that are there at one time only one has these values. Trees that lived at different times may have
/// the same ones, since the root and the children of a freed tree may have been at the same addresses. So
/// what was seen in a search without result proves nothing about a variable that was found. Zeros
/// are the value of no tree.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SeenTree {
    variables: u64,
    root: u64,
    /// The root's type, and its words after the head.
    of: u64,
    words: u64,
    children: u64,
}

/// A look at a tree.
#[inline(always)]
pub fn look<M: Memory>(objects: &Objects<'_, M>, tree: u64) -> Result<SeenTree, Damaged> {
    let root = objects.field(tree, 0)?;
    let words = match node(objects, root)? {
        Node::Array => 32,
        // Their size and the bit map come first.
        Node::Bitmap | Node::Collision => objects.size(root)?.min(64) + 2,
    };
    look_at(objects, tree, root, words)
}

#[inline(always)]
fn look_at<M: Memory>(
    objects: &Objects<'_, M>,
    tree: u64,
    root: u64,
    words: u64,
) -> Result<SeenTree, Damaged> {
    let mut children = 0u64;
    for word in 0..words {
        children = children.rotate_left(11).wrapping_add(objects.field(root, word)?);
    }
    Ok(SeenTree { variables: objects.field(tree, 2)?, root, of: objects.type_of(root)?, words, children })
}

/// Whether a look at the tree is that one. False for a tree with many variables or a large root.
#[inline(always)]
pub fn is_as_seen<M: Memory>(objects: &Objects<'_, M>, tree: u64, seen: SeenTree) -> Result<bool, Damaged> {
    let root = objects.field(tree, 0)?;
    // As many words are read as the root has.
    Ok(root == seen.root
        && seen.variables <= u64::from(SEARCHED_MAX)
        && seen.words <= 16
        && objects.type_of(root)? == seen.of
        && objects.size(root)? + 2 == seen.words
        && look_at(objects, tree, root, seen.words)? == seen)
}

/// Calls `seen` with every variable and its value, up to the search limit.
#[inline(always)]
pub fn each<M: Memory>(
    objects: &Objects<'_, M>,
    tree: u64,
    mut seen: impl FnMut(u64, u64) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    let root = objects.field(tree, 0)?;
    let mut left = SEARCHED_MAX;
    // The path of nodes, each with the index of the next child.
    let mut path = [(root, 0u64); LEVELS + 1];
    let mut depth = 0;
    loop {
        let Some((at, child_index)) = path.get(depth).copied() else { return Err(Damaged) };
        let further = step(objects, at, child_index, &mut left, &mut seen)?;
        match further {
            Step::Next => {
                if let Some((_, child_index)) = path.get_mut(depth) {
                    *child_index += 1;
                }
            }
            Step::Into(child) => {
                if let Some((_, child_index)) = path.get_mut(depth) {
                    *child_index += 1;
                }
                depth += 1;
                *path.get_mut(depth).ok_or(Damaged)? = (child, 0);
            }
            Step::Done if depth == 0 || left == 0 => return Ok(()),
            Step::Done => depth -= 1,
        }
    }
}

enum Step {
    Next,
    Into(u64),
    Done,
}

#[inline(always)]
fn step<M: Memory>(
    objects: &Objects<'_, M>,
    at: u64,
    child_index: u64,
    left: &mut u32,
    seen: &mut impl FnMut(u64, u64) -> Result<(), Damaged>,
) -> Result<Step, Damaged> {
    if *left == 0 {
        return Ok(Step::Done);
    }
    match node(objects, at)? {
        Node::Array if child_index >= 32 => Ok(Step::Done),
        Node::Array => Ok(match objects.word(at, objects.head() + 8 * child_index)? {
            0 => Step::Next,
            child => Step::Into(child),
        }),
        Node::Bitmap | Node::Collision => {
            if child_index >= objects.size(at)?.min(64) / 2 {
                return Ok(Step::Done);
            }
            let (key, value) = pair_of(objects, at, child_index)?;
            if key == 0 {
                return Ok(Step::Into(value));
            }
            *left -= 1;
            seen(key, value)?;
            Ok(Step::Next)
        }
    }
}

/// A variable and its value, or 0 and a node.
#[inline(always)]
fn pair_of<M: Memory>(objects: &Objects<'_, M>, at: u64, pair: u64) -> Result<(u64, u64), Damaged> {
    let first = objects.after_size() + 8 + 16 * pair;
    Ok((objects.word(at, first)?, objects.word(at, first + 8)?))
}
