//! What users chose about an export, for the formats that have a choice.

use crate::flame::{GroupBy, RangePosition};
use crate::spans::{Naming, Sampling};

#[derive(Clone, Default, Debug)]
pub struct Choices {
    /// Where `folded` shows ranges, and what it groups by.
    pub ranges: RangePosition,
    pub group_by: GroupBy,
    /// The names and the choice of spans of `otlp-json`.
    pub naming: Naming,
    pub sampling: Sampling,
}
