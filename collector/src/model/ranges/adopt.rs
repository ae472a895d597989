//! Ranges of one process taken in by those of another: what processes of one name have in common is there once.

use super::{LABEL_BYTES, NODE_BYTES, RangeName, Ranges, UNKNOWN};

impl Ranges {
    /// Takes in another process's ranges; the nodes that its nodes are here. Names for which there is no room are one.
    pub fn adopt(&mut self, other: &Ranges, room_bytes: &mut usize) -> Vec<u32> {
        let mut labels = Vec::with_capacity(other.labels.len());
        for label in 0..other.labels.len() as u32 {
            let name = other.shown(label).filter(|_| label != UNKNOWN);
            let here = name.map_or(UNKNOWN, |name| self.adopted(name, room_bytes));
            if let (Some(spans), Some(known)) = (self.spans(here), other.labels.get(label as usize)) {
                let unfinished = known.spans.started.saturating_sub(known.spans.ended);
                spans.add(&known.spans);
                spans.open = spans.open.saturating_add(unfinished);
            }
            labels.push(here);
        }
        let mut nodes = Vec::with_capacity(other.nodes.len());
        for node in &other.nodes {
            // A node comes behind the one that it is in; the first stands for no range.
            let around = nodes.get(node.parent as usize).copied().unwrap_or(0);
            let label = labels.get(node.label as usize).copied().unwrap_or(UNKNOWN);
            let is_known = node.depth == 0 || self.children.contains_key(&(around, label));
            nodes.push(match room_bytes.checked_sub(NODE_BYTES) {
                _ if node.depth == 0 => 0,
                None if !is_known => around,
                left => {
                    let before = self.nodes.len();
                    let here = self.child(around, label).unwrap_or(around);
                    if self.nodes.len() > before {
                        *room_bytes = left.unwrap_or(0);
                    }
                    here
                }
            });
        }
        nodes
    }

    /// The label of that name.
    fn adopted(&mut self, name: &RangeName, room_bytes: &mut usize) -> u32 {
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        // A name with numbers brings its pattern along.
        let bytes = 2 * (LABEL_BYTES + name.name.len() + name.domain.len());
        match room_bytes.checked_sub(bytes) {
            Some(left) => {
                let before = self.labels.len();
                let label = self.named(name.clone());
                if self.labels.len() > before {
                    *room_bytes = left;
                }
                label
            }
            None => {
                let others = RangeName::new("", "(other ranges)");
                if let Some(known) = self.by_name.get(&others) {
                    return *known;
                }
                self.named(others)
            }
        }
    }
}
