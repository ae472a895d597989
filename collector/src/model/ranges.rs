//! Ranges of a process, as a tree of nested names.
//!
//! A node of the tree stands for the ranges that are open on a thread, from the outermost to one. Calls carry
//! the number of their node (0: no range). Bounded: a range that does not fit the tree counts for the range
//! around it.
//!
//! Names that differ only in their numbers (`step 17`) become one name, `step #`, once there are many, so
//! that neither the tree nor a flamegraph grows with the run.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use gputrace_wire::range::POSITIONS_MAX;

use crate::model::definitions::Definitions;

/// Nodes of a process's tree.
const NODES_MAX: usize = 1 << 16;
/// Names that differ in their numbers only, before they are one.
const NUMBERED_MAX: u32 = 100;
/// About the bytes of a node and of a label with their keys, without the text of the name.
const NODE_BYTES: usize = size_of::<RangeNode>() + size_of::<((u32, u32), u32)>();
const LABEL_BYTES: usize = size_of::<Label>() + size_of::<(RangeName, u32)>();

/// The label of ranges without a known name: the name did not fit, or the begin was lost.
const UNKNOWN: u32 = 0;

#[derive(Clone, Copy, Debug)]
struct RangeNode {
    parent: u32,
    label: u32,
    depth: u32,
}

/// A range by its name and its domain.
#[derive(Debug)]
struct Label {
    name: RangeName,
    /// The pattern of the name, if it has numbers.
    pattern: Option<u32>,
    spans: Spans,
}

/// A range's domain and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RangeName {
    /// Empty for the default domain.
    pub domain: Arc<str>,
    pub name: Arc<str>,
}

impl RangeName {
    fn new(domain: &str, name: &str) -> RangeName {
        RangeName { domain: domain.into(), name: name.into() }
    }

    /// `NCCL: ncclAllReduce`, or the name alone.
    pub fn text(&self) -> String {
        match (&*self.domain, &*self.name) {
            ("", "") => "(unnamed range)".to_owned(),
            ("", name) => name.to_owned(),
            (domain, name) => format!("{domain}: {name}"),
        }
    }
}

/// How often a range was open, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spans {
    /// Ranges that ended.
    pub count: u64,
    /// Their host time. A range inside one of the same name adds nothing.
    pub host_ns: u64,
    /// Ranges that had not ended when their thread or the stream did.
    pub open: u64,
    /// Begun ranges of those that are ended by number.
    started: u64,
    /// Ended ranges of those that are ended by number.
    ended: u64,
    /// Marks: moments, not ranges.
    pub marks: u64,
}

impl Spans {
    pub fn add(&mut self, other: &Spans) {
        self.count = self.count.saturating_add(other.count);
        self.host_ns = self.host_ns.saturating_add(other.host_ns);
        self.open = self.open.saturating_add(other.open);
        self.marks = self.marks.saturating_add(other.marks);
    }
}

/// Names that differ in their numbers only.
#[derive(Debug)]
struct Pattern {
    /// The label that stands for all of them.
    label: u32,
    names: u32,
}

#[derive(Debug)]
pub struct Ranges {
    nodes: Vec<RangeNode>,
    children: FxHashMap<(u32, u32), u32>,
    labels: Vec<Label>,
    by_definition: FxHashMap<u32, u32>,
    by_name: FxHashMap<RangeName, u32>,
    patterns: Vec<Pattern>,
    by_pattern: FxHashMap<RangeName, u32>,
}

impl Default for Ranges {
    fn default() -> Self {
        let name = RangeName::new("", "(unknown range)");
        Ranges {
            nodes: vec![RangeNode { parent: 0, label: UNKNOWN, depth: 0 }],
            children: FxHashMap::default(),
            labels: vec![Label { name, pattern: None, spans: Spans::default() }],
            by_definition: FxHashMap::default(),
            by_name: FxHashMap::default(),
            patterns: Vec::new(),
            by_pattern: FxHashMap::default(),
        }
    }
}

impl Ranges {
    /// Whether there was any range or mark.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
            && self.labels.len() == 1
            && self.labels.iter().all(|l| l.spans == Spans::default())
    }

    /// About how many bytes of memory it takes, with the keys of nodes and labels.
    pub fn held_bytes(&self) -> usize {
        let nodes = self.nodes.capacity() * NODE_BYTES;
        let labels = self.labels.capacity() * LABEL_BYTES;
        let names: usize = self.labels.iter().map(|label| label.name.name.len()).sum();
        nodes + labels + names + self.by_definition.len() * size_of::<(u32, u32)>()
    }

    // --- changes by a ring's entries

    /// A range begins at that position of the list. Returns the new node.
    pub fn push(&mut self, node: u32, position: u32, range: u32, definitions: &Definitions) -> u32 {
        if position >= POSITIONS_MAX {
            return node;
        }
        let label = self.label(range, definitions);
        let mut at = self.cut(node, position);
        while self.depth(at) < position {
            match self.child(at, UNKNOWN) {
                Some(child) => at = child,
                None => return at,
            }
        }
        self.child(at, label).unwrap_or(at)
    }

    /// The range at that position ends, if there is one, and `open` ranges are left. Returns the new node.
    pub fn pop(&mut self, node: u32, position: u32, open: u32) -> u32 {
        let depth = self.depth(node);
        if position >= depth {
            return self.cut(node, open);
        }
        let mut at = self.cut(node, position);
        for label in self.labels_of(node).into_iter().skip(position as usize + 1) {
            at = self.child(at, label).unwrap_or(at);
        }
        self.cut(at, open)
    }

    /// The node of the list cut to its `open` outermost ranges.
    pub fn cut(&self, mut node: u32, open: u32) -> u32 {
        while let Some(at) = self.nodes.get(node as usize)
            && at.depth > open
        {
            node = at.parent;
        }
        node
    }

    /// Counts a range that ended. `list`: its thread's node and its position, if it was in a list.
    pub fn ended(&mut self, range: u32, host_ns: u64, list: Option<(u32, u32)>, definitions: &Definitions) {
        let label = self.label(range, definitions);
        let around = list.map_or(0, |(node, position)| self.cut(node, position));
        let is_within_itself = self.labels_of(around).contains(&label);
        if let Some(spans) = self.spans(label) {
            spans.count += 1;
            if !is_within_itself {
                spans.host_ns = spans.host_ns.saturating_add(host_ns);
            }
        }
    }

    /// Counts the begin or the end of a range that is ended by its number.
    pub fn by_number(&mut self, range: u32, is_end: bool, definitions: &Definitions) {
        let label = self.label(range, definitions);
        if let Some(spans) = self.spans(label) {
            *(if is_end { &mut spans.ended } else { &mut spans.started }) += 1;
        }
    }

    pub fn mark(&mut self, range: u32, definitions: &Definitions) {
        let label = self.label(range, definitions);
        if let Some(spans) = self.spans(label) {
            spans.marks += 1;
        }
    }

    /// Counts ranges that were open when their thread or the stream ended.
    pub fn left_open(&mut self, node: u32) {
        for label in self.labels_of(node) {
            if let Some(spans) = self.spans(label) {
                spans.open += 1;
            }
        }
    }

    // --- results

    /// The names of the ranges that a node stands for, outermost first.
    pub fn names(&self, node: u32) -> Vec<&RangeName> {
        self.labels_of(node).into_iter().filter_map(|label| self.shown(label)).collect()
    }

    /// All ranges by name. A name may come more than once.
    pub fn spans_by_name(&self) -> impl Iterator<Item = (&RangeName, Spans)> {
        (0..self.labels.len() as u32).filter_map(|label| {
            let spans = self.labels.get(label as usize)?.spans;
            let unfinished = spans.started.saturating_sub(spans.ended);
            Some((self.shown(label)?, Spans { open: spans.open.saturating_add(unfinished), ..spans }))
        })
    }

    /// A label's name, or its pattern if too many names of that pattern were seen.
    fn shown(&self, label: u32) -> Option<&RangeName> {
        let found = self.labels.get(label as usize)?;
        let pattern = found.pattern.and_then(|pattern| self.patterns.get(pattern as usize));
        match pattern.filter(|pattern| pattern.names > NUMBERED_MAX) {
            Some(pattern) => self.labels.get(pattern.label as usize).map(|label| &label.name),
            None => Some(&found.name),
        }
    }

    fn spans(&mut self, label: u32) -> Option<&mut Spans> {
        self.labels.get_mut(label as usize).map(|label| &mut label.spans)
    }

    fn depth(&self, node: u32) -> u32 {
        self.nodes.get(node as usize).map_or(0, |node| node.depth)
    }

    fn labels_of(&self, mut node: u32) -> Vec<u32> {
        let mut labels = Vec::new();
        while let Some(at) = self.nodes.get(node as usize).filter(|at| at.depth > 0) {
            labels.push(at.label);
            node = at.parent;
        }
        labels.reverse();
        labels
    }

    fn child(&mut self, parent: u32, label: u32) -> Option<u32> {
        if let Some(known) = self.children.get(&(parent, label)) {
            return Some(*known);
        }
        if self.nodes.len() >= NODES_MAX {
            return None;
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(RangeNode { parent, label, depth: self.depth(parent) + 1 });
        self.children.insert((parent, label), node);
        Some(node)
    }

    /// The label of a range definition.
    fn label(&mut self, range: u32, definitions: &Definitions) -> u32 {
        if let Some(known) = self.by_definition.get(&range) {
            return *known;
        }
        let Some((domain, name)) = definitions.range(range) else { return UNKNOWN };
        let name = RangeName::new(domain, name);
        let label = self.named(name);
        self.by_definition.insert(range, label);
        label
    }

    fn named(&mut self, name: RangeName) -> u32 {
        if let Some(known) = self.by_name.get(&name) {
            return *known;
        }
        let pattern = numbers_out(&name.name).map(|pattern| {
            let pattern = RangeName { domain: name.domain.clone(), name: pattern.into() };
            match self.by_pattern.get(&pattern) {
                Some(known) => *known,
                None => {
                    let label = self.add(pattern.clone(), None);
                    let number = self.patterns.len() as u32;
                    self.patterns.push(Pattern { label, names: 0 });
                    self.by_pattern.insert(pattern, number);
                    number
                }
            }
        });
        if let Some(known) = pattern.and_then(|pattern| self.patterns.get_mut(pattern as usize)) {
            known.names = known.names.saturating_add(1);
            if known.names > NUMBERED_MAX {
                return known.label;
            }
        }
        let label = self.add(name.clone(), pattern);
        self.by_name.insert(name, label);
        label
    }

    fn add(&mut self, name: RangeName, pattern: Option<u32>) -> u32 {
        let label = self.labels.len() as u32;
        self.labels.push(Label { name, pattern, spans: Spans::default() });
        label
    }
}

/// The name with `#` for each number in it; `None` if it has no number.
fn numbers_out(name: &str) -> Option<String> {
    if !name.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut pattern = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '0'..='9' if pattern.ends_with('#') => {}
            '0'..='9' => pattern.push('#'),
            other => pattern.push(other),
        }
    }
    Some(pattern)
}

#[cfg(test)]
mod tests {
    use gputrace_wire::definition::kind;

    use super::*;
    use crate::batch::Definition;

    fn definitions(names: &[(&str, u64)]) -> Definitions {
        let mut definitions = Definitions::default();
        let mut add = |kind, id, fields: &[u64], text: &str| {
            definitions.add(&Definition { kind, id, fields: fields.to_vec(), text: text.into() });
        };
        add(kind::DOMAIN, 1, &[], "NCCL");
        for (at, (name, domain)) in names.iter().enumerate() {
            add(kind::RANGE, at as u32 + 2, &[*domain], name);
        }
        definitions
    }

    fn texts(ranges: &Ranges, node: u32) -> Vec<String> {
        ranges.names(node).into_iter().map(RangeName::text).collect()
    }

    #[test]
    fn list_follows_pushes_and_pops_of_any_order() {
        let definitions = definitions(&[("step", 0), ("forward", 0), ("allReduce", 1)]);
        let mut ranges = Ranges::default();
        let one = ranges.push(0, 0, 2, &definitions);
        let two = ranges.push(one, 1, 4, &definitions);
        let three = ranges.push(two, 2, 3, &definitions);
        assert_eq!(texts(&ranges, three), ["step", "NCCL: allReduce", "forward"]);
        let without = ranges.pop(three, 1, 2);
        assert_eq!(texts(&ranges, without), ["step", "forward"]);
        assert_eq!(ranges.pop(without, 1, 1), one);
        assert_eq!(ranges.pop(one, 0, 0), 0);
        assert_eq!(ranges.push(0, 0, 2, &definitions), one, "the same ranges are the same node");
    }

    #[test]
    fn list_is_mended_where_entries_are_missing() {
        let definitions = definitions(&[("step", 0), ("forward", 0)]);
        let mut ranges = Ranges::default();
        let gap = ranges.push(0, 2, 3, &definitions);
        assert_eq!(texts(&ranges, gap), ["(unknown range)", "(unknown range)", "forward"]);
        let again = ranges.push(gap, 0, 2, &definitions);
        assert_eq!(texts(&ranges, again), ["step"]);
        assert_eq!(ranges.pop(again, 7, 0), 0, "a range that was not known ends");
        assert_eq!(ranges.pop(again, u32::MAX, u32::MAX), again);
        assert_eq!(ranges.push(again, u32::MAX, 2, &definitions), again);
        let unknown = ranges.push(0, 0, 99, &definitions);
        assert_eq!(texts(&ranges, unknown), ["(unknown range)"]);
    }

    #[test]
    fn names_that_count_become_one_where_they_are_many() {
        let names: Vec<String> = (0..1000).map(|step| format!("step {step} of 1000")).collect();
        let names: Vec<(&str, u64)> =
            names.iter().map(|name| (name.as_str(), 0)).chain([("layer 1", 0), ("layer 2", 0)]).collect();
        let definitions = definitions(&names);
        let mut ranges = Ranges::default();
        let nodes: Vec<u32> = (0..1002).map(|at| ranges.push(0, 0, at + 2, &definitions)).collect();
        for node in &nodes[..1000] {
            assert_eq!(texts(&ranges, *node), ["step # of #"]);
        }
        assert_eq!(texts(&ranges, nodes[1000]), ["layer 1"]);
        assert_eq!(texts(&ranges, nodes[1001]), ["layer 2"]);
        assert!(ranges.nodes.len() < 110, "{}", ranges.nodes.len());
    }

    #[test]
    fn range_inside_itself_adds_no_time_of_its_own() {
        let definitions = definitions(&[("recursive", 0)]);
        let mut ranges = Ranges::default();
        let outer = ranges.push(0, 0, 2, &definitions);
        let inner = ranges.push(outer, 1, 2, &definitions);
        ranges.ended(2, 60, Some((inner, 1)), &definitions);
        ranges.ended(2, 100, Some((outer, 0)), &definitions);
        ranges.ended(2, 5, None, &definitions);
        ranges.by_number(2, false, &definitions);
        ranges.left_open(outer);
        let (_, spans) = ranges.spans_by_name().nth(1).unwrap();
        assert_eq!((spans.count, spans.host_ns, spans.open), (3, 105, 2));
    }
}
