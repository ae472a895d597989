//! Launches in windows by where they were made, and launches outside of windows of which that is not known.

use rustc_hash::FxHashMap;

use super::key_sums::KeySums;
use crate::aggregate::StackKey;
use crate::aggregate::bounded::Bounded;
use crate::model::operation::HostCall;

use gputrace_wire::call::Launch;

/// Sites that have sums of their own, and those from which on threads and ranges share one. Launches of
/// others have no part in where launches without a stack are put.
const SITES_MAX: usize = 1 << 16;
const FINE_SITES_MAX: usize = SITES_MAX / 2;
/// Rows of launches without a stack, and those from which on streams and ranges share one.
const UNPLACED_MAX: usize = 1 << 17;
const FINE_UNPLACED_MAX: usize = UNPLACED_MAX / 2;

/// Grid and block.
pub type LaunchShape = ([u32; 3], [u16; 3]);

/// Where a kernel was launched from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LaunchSite {
    pub process: u32,
    pub function: u32,
    pub shape: LaunchShape,
    pub stack: u32,
    pub thread: u32,
    pub ranges: u32,
}

/// Launches whose stack is not known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Unplaced {
    /// Their row, without a stack.
    pub key: StackKey,
    pub function: u32,
    /// `None` of launches that were only counted. Their thread and ranges are not known either.
    pub shape: Option<LaunchShape>,
}

#[derive(Clone, Debug, Default)]
pub struct LaunchSites {
    pub sites: Vec<(LaunchSite, KeySums)>,
    numbers: FxHashMap<LaunchSite, u32>,
    pub unplaced: Bounded<Unplaced, u64, UNPLACED_MAX>,
}

impl LaunchSites {
    /// The sums of the launch's site, if it can have some.
    pub fn site(&mut self, call: &HostCall, launch: &Launch) -> Option<&mut KeySums> {
        let mut site = LaunchSite {
            process: call.process,
            function: launch.function,
            shape: (launch.grid, launch.block),
            stack: call.stack,
            thread: call.thread,
            ranges: call.ranges,
        };
        let next = self.sites.len();
        if next >= FINE_SITES_MAX && !self.numbers.contains_key(&site) {
            site = LaunchSite { thread: 0, ranges: 0, ..site };
        }
        let number = match self.numbers.get(&site) {
            Some(number) => *number,
            None if next < SITES_MAX => {
                self.numbers.insert(site, next as u32);
                self.sites.push((site, KeySums::default()));
                next as u32
            }
            None => return None,
        };
        self.sites.get_mut(number as usize).map(|(_, sums)| sums)
    }

    /// Counts launches whose stack is not known. Returns false if they have no row.
    pub fn add_unplaced(&mut self, unplaced: Unplaced, launches: u64) -> bool {
        let is_fine = self.unplaced.len() < FINE_UNPLACED_MAX || self.unplaced.get(&unplaced).is_some();
        let coarse = StackKey { stream: crate::aggregate::MANY_STREAMS, ranges: 0, ..unplaced.key };
        let row = if is_fine { unplaced } else { Unplaced { key: coarse, ..unplaced } };
        match self.unplaced.row(row, || 0) {
            Some(count) => {
                *count = count.saturating_add(launches);
                true
            }
            None => false,
        }
    }

    /// The sums by unit of all sites.
    pub fn unit_sums(&self) -> usize {
        self.sites.iter().map(|(_, sums)| sums.units.len()).sum()
    }

    pub fn halve(&mut self) {
        self.sites.iter_mut().for_each(|(_, sums)| sums.halve());
    }
}
