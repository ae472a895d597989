//! Where launches without a stack probably were made: where other launches of their kernel in windows were.
//!
//! A pool has the launches of one kernel in scheduled windows that resemble those without a stack. Each site
//! in it gets its part of them, by the launches that it has in the pool, and that part of the time.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::interval::{LaunchPool, Mean, Pooled};
use super::key_sums::KeySums;
use super::launch_sites::{LaunchShape, LaunchSite, LaunchSites, Unplaced};
use super::units::Units;
use crate::aggregate::StackKey;

/// Rows that launches without a stack are divided among; further launches stay without one.
const ROWS_MAX: usize = 1 << 18;
/// Windows that a pool of one thread, or of one thread and range, must have: fewer say little.
const NARROW_UNITS_MIN: usize = 10;
/// The same of one launch configuration.
const SHAPE_UNITS_MIN: usize = 2;

/// Launches of one row that probably were made at one site.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlacedRow {
    pub key: StackKey,
    pub calls: u64,
    /// The number of the mean, and how often it is taken; `None` if no site is known.
    pub mean: Option<(usize, f64)>,
}

/// Which launches a pool has. What is `None` may be any.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct PoolId {
    process: u32,
    function: u32,
    shape: Option<LaunchShape>,
    thread: Option<u32>,
    ranges: Option<u32>,
}

impl PoolId {
    /// Those that have such launches, the most similar ones first.
    fn of(unplaced: &Unplaced) -> impl Iterator<Item = (PoolId, usize)> {
        let Unplaced { key: StackKey { process, thread, ranges, .. }, function, shape } = *unplaced;
        let any = PoolId { process, function, shape: None, thread: None, ranges: None };
        let of_shape = PoolId { shape, ..any };
        let of_thread = PoolId { thread: Some(thread), ..of_shape };
        let narrow = PoolId { ranges: Some(ranges), ..of_thread };
        let of_call =
            [(narrow, NARROW_UNITS_MIN), (of_thread, NARROW_UNITS_MIN), (of_shape, SHAPE_UNITS_MIN)];
        let of_call = of_call.into_iter().filter(move |_| shape.is_some());
        of_call.chain([(any, 0)])
    }

    fn all_of(site: &LaunchSite) -> [PoolId; 4] {
        let LaunchSite { process, function, shape, thread, ranges, .. } = *site;
        let any = PoolId { process, function, shape: None, thread: None, ranges: None };
        let of_shape = PoolId { shape: Some(shape), ..any };
        let of_thread = PoolId { thread: Some(thread), ..of_shape };
        [any, of_shape, of_thread, PoolId { ranges: Some(ranges), ..of_thread }]
    }
}

/// A site in a pool: launches without a stack get its stack, and counted ones its thread and ranges too.
struct SiteShare {
    key: StackKey,
    mean: usize,
    share: f64,
    /// By how much its launches so far exceed what they should be, being whole numbers.
    ahead: f64,
}

/// The launches of a part by unit, and outside of the schedule.
#[derive(Default)]
struct SiteSums {
    by_unit: BTreeMap<u32, (u64, u64)>,
    other: (u64, u64),
    row: Option<StackKey>,
}

impl SiteSums {
    fn add(&mut self, sums: &KeySums) {
        for of in &sums.units {
            let unit = self.by_unit.entry(of.unit).or_default();
            *unit = (unit.0 + u64::from(of.count), unit.1.saturating_add(of.ns));
        }
        self.other = (self.other.0 + sums.other.0, self.other.1.saturating_add(sums.other.1));
        self.row = self.row.or(sums.row);
    }

    /// Count and time in scheduled windows.
    fn scheduled(&self) -> (f64, f64) {
        self.by_unit.values().fold((0.0, 0.0), |sum, of| (sum.0 + of.0 as f64, sum.1 + of.1 as f64))
    }
}

/// The pools that were asked for, and their means.
struct LaunchPools<'a> {
    sites: &'a [(LaunchSite, KeySums)],
    /// The sites of each possible pool.
    known: FxHashMap<PoolId, Vec<u32>>,
    /// By pool, and whether threads and ranges are those of the site.
    parts: FxHashMap<(PoolId, bool), Vec<SiteShare>>,
    means: &'a mut Vec<Mean>,
    pools: &'a mut Vec<LaunchPool>,
    units: &'a mut Units,
}

/// Divides all launches without a stack, and adds the means of the sites that they got.
pub fn divided(
    launches: &LaunchSites,
    means: &mut Vec<Mean>,
    pools: &mut Vec<LaunchPool>,
    units: &mut Units,
) -> Vec<PlacedRow> {
    if launches.unplaced.len() == 0 {
        return Vec::new();
    }
    let mut known: FxHashMap<PoolId, Vec<u32>> = FxHashMap::default();
    for (number, (site, _)) in launches.sites.iter().enumerate() {
        PoolId::all_of(site).iter().for_each(|id| known.entry(*id).or_default().push(number as u32));
    }
    let mut all =
        LaunchPools { sites: &launches.sites, known, parts: FxHashMap::default(), means, pools, units };
    let mut rows = Vec::new();
    for (unplaced, count) in launches.unplaced.sorted() {
        let is_full = rows.len() >= ROWS_MAX;
        match all.pool(&unplaced).filter(|_| !is_full) {
            Some(parts) => divide(parts, &unplaced, *count, &mut rows),
            None => rows.push(PlacedRow { key: unplaced.key, calls: *count, mean: None }),
        }
    }
    rows
}

impl LaunchPools<'_> {
    fn pool(&mut self, unplaced: &Unplaced) -> Option<&mut Vec<SiteShare>> {
        let by_site = unplaced.shape.is_none();
        let (id, _) = PoolId::of(unplaced).find(|(id, units_min)| {
            let sites = self.known.get(id).map_or(&[][..], Vec::as_slice);
            !sites.is_empty() && (*units_min == 0 || self.units_of(sites) >= *units_min)
        })?;
        if !self.parts.contains_key(&(id, by_site)) {
            let parts = self.make(&id, by_site);
            self.parts.insert((id, by_site), parts);
        }
        self.parts.get_mut(&(id, by_site)).filter(|parts| !parts.is_empty())
    }

    /// The number of units of such sites; counts no further than is asked for.
    fn units_of(&self, sites: &[u32]) -> usize {
        let mut seen: Vec<u32> = Vec::new();
        for (_, sums) in sites.iter().filter_map(|site| self.sites.get(*site as usize)) {
            for of in sums.units.iter().take(NARROW_UNITS_MIN) {
                if !seen.contains(&of.unit) {
                    seen.push(of.unit);
                }
            }
            if seen.len() >= NARROW_UNITS_MIN {
                break;
            }
        }
        seen.len()
    }

    fn make(&mut self, id: &PoolId, by_site: bool) -> Vec<SiteShare> {
        let mut found: BTreeMap<(u32, u32, u32), SiteSums> = BTreeMap::new();
        let sites = self.known.get(id).map_or(&[][..], Vec::as_slice);
        for (site, sums) in sites.iter().filter_map(|site| self.sites.get(*site as usize)) {
            let (thread, ranges) = if by_site { (site.thread, site.ranges) } else { (0, 0) };
            found.entry((site.stack, thread, ranges)).or_default().add(sums);
        }
        let scheduled: f64 = found.values().map(|part| part.scheduled().0).sum();
        let other: f64 = found.values().map(|part| part.other.0 as f64).sum();
        if scheduled + other <= 0.0 {
            return Vec::new();
        }
        let mut by_unit: BTreeMap<u32, f64> = BTreeMap::new();
        for (unit, (count, _)) in found.values().flat_map(|part| &part.by_unit) {
            *by_unit.entry(self.units.of(id.process, *unit)).or_default() += *count as f64;
        }
        let pool = self.pools.len() as u32;
        self.pools.push(LaunchPool { units: by_unit.iter().map(|(unit, count)| (*unit, *count)).collect() });
        let mut parts = Vec::new();
        for ((stack, thread, ranges), part) in found {
            let Some(row) = part.row else { continue };
            let (of_part, all) = match scheduled > 0.0 {
                true => (part.scheduled(), scheduled),
                false => ((part.other.0 as f64, part.other.1 as f64), other),
            };
            if of_part.0 <= 0.0 {
                continue;
            }
            let (share, per_call) = (of_part.0 / all, of_part.1 / all);
            let by_unit_of_part = part.by_unit.iter().map(|(unit, (count, ns))| {
                let unit_number = self.units.of(id.process, *unit);
                (unit_number, *ns as f64, *count as f64)
            });
            let by_unit_of_part: Vec<(u32, f64, f64)> = by_unit_of_part.collect();
            // Of the whole: the square of what a unit's time exceeds the mean by, also of units without any.
            let squares = by_unit.values().map(|count| (per_call * count).powi(2)).sum::<f64>()
                + by_unit_of_part
                    .iter()
                    .map(|(unit, ns, _)| {
                        let expected = per_call * by_unit.get(unit).copied().unwrap_or(0.0);
                        (ns - expected).powi(2) - expected.powi(2)
                    })
                    .sum::<f64>();
            parts.push(SiteShare {
                key: StackKey { stack, thread, ranges, ..row },
                mean: self.means.len(),
                share,
                ahead: 0.0,
            });
            self.means.push(Mean {
                per_call: Some(per_call),
                operations_per_call: share,
                count: scheduled,
                sum: if scheduled > 0.0 { of_part.1 } else { 0.0 },
                residuals: by_unit_of_part.iter().map(|(unit, ns, _)| (*unit, *ns)).collect(),
                units: by_unit.len(),
                squares: squares.max(0.0),
                pooled: Some(Pooled {
                    pool,
                    counts: by_unit_of_part.iter().map(|(unit, _, count)| (*unit, *count)).collect(),
                }),
            });
        }
        parts
    }
}

/// Divides launches among the parts of their pool. Each part gets a whole number of calls, so that the sum
/// stays exact, and what that is too much or too little is made up for by later launches.
fn divide(parts: &mut [SiteShare], unplaced: &Unplaced, count: u64, rows: &mut Vec<PlacedRow>) {
    let wanted: Vec<f64> = parts.iter().map(|part| part.share * count as f64 - part.ahead).collect();
    let mut calls: Vec<u64> = wanted.iter().map(|wanted| wanted.max(0.0).floor() as u64).collect();
    let given: u64 = calls.iter().fold(0, |sum: u64, calls| sum.saturating_add(*calls));
    let mut order: Vec<usize> = (0..parts.len()).collect();
    let lack = |at: &usize| {
        let (wanted, calls) = (wanted.get(*at).copied().unwrap_or(0.0), calls.get(*at).copied().unwrap_or(0));
        wanted - calls as f64
    };
    order.sort_by(|a, b| lack(b).total_cmp(&lack(a)).then(a.cmp(b)));
    let (mut missing, mut excess) = (count.saturating_sub(given), given.saturating_sub(count));
    // Once around is enough but for the rounding of very large numbers, whose rest goes to the first.
    for at in &order {
        if let Some(calls) = calls.get_mut(*at).filter(|_| missing > 0) {
            *calls += 1;
            missing -= 1;
        }
    }
    for at in order.iter().rev() {
        if let Some(calls) = calls.get_mut(*at) {
            let less = excess.min(*calls).min(1);
            *calls -= less;
            excess -= less;
        }
    }
    if let Some(calls) = order.first().and_then(|at| calls.get_mut(*at)) {
        *calls = (*calls + missing).saturating_sub(excess);
    }
    for ((part, calls), wanted) in parts.iter_mut().zip(calls).zip(wanted) {
        part.ahead = calls as f64 - wanted;
        let of_launch = unplaced.key;
        let key = match unplaced.shape {
            Some(_) => StackKey { stack: part.key.stack, leaf: part.key.leaf, ..of_launch },
            None => StackKey { stream: of_launch.stream, device: of_launch.device, ..part.key },
        };
        rows.push(PlacedRow { key, calls, mean: Some((part.mean, count as f64)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::{Leaf, NO_DEVICE};

    fn part(share: f64) -> SiteShare {
        let key = StackKey::without_call(0, NO_DEVICE, Leaf::Kernel(1));
        SiteShare { key, mean: 0, share, ahead: 0.0 }
    }

    #[test]
    fn calls_are_whole_and_their_sum_is_exact_however_few_come_at_once() {
        let unplaced = Unplaced { key: part(0.0).key, function: 1, shape: Some(([1, 1, 1], [1, 1, 1])) };
        for (shares, counts) in [
            (&[0.6, 0.3, 0.1][..], &[1u64; 1_000][..]),
            (&[0.5, 0.5], &[3; 333]),
            (&[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0], &[7, 1_000_003, 1]),
            (&[0.999, 0.0005, 0.0005], &[1; 5_000]),
            (&[0.25, 0.75], &[1 << 47, 3]),
        ] {
            let mut parts: Vec<SiteShare> = shares.iter().map(|share| part(*share)).collect();
            let mut sums = vec![0u64; parts.len()];
            for count in counts {
                let mut rows = Vec::new();
                divide(&mut parts, &unplaced, *count, &mut rows);
                assert_eq!(rows.iter().map(|row| row.calls).sum::<u64>(), *count, "{shares:?}");
                rows.iter().zip(&mut sums).for_each(|(row, sum)| *sum += row.calls);
            }
            let all: u64 = counts.iter().sum();
            for (sum, share) in sums.iter().zip(shares) {
                assert!((*sum as f64 - share * all as f64).abs() < 2.0, "{shares:?}: {sums:?} of {all}");
            }
        }
    }
}
