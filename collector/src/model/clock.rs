//! Clocks: ticks and device nanoseconds to CLOCK_MONOTONIC, by the anchors seen so far.
//!
//! Owns the fit of the clocks. An anchor never changes a time that was already computed: the map only
//! grows at its end, so results depend only on the order of the stream, and a later input never maps to
//! an earlier time. Inputs are untrusted; arithmetic saturates.

use gputrace_wire::clock::{Anchor, tick};

/// Rates are nanoseconds per unit in 24.40 fixed point: an hour of extrapolation rounds by less
/// than 20 ns.
const RATE_BITS: u32 = 40;
const UNIT_RATE: u64 = 1 << RATE_BITS;
/// Anchors closer than this are not used for the rate, since their own error is too large.
const RATE_SPAN_MIN_NS: u64 = 50_000_000;
/// The rate is measured over at least half of this and at most all of it, so that it follows drift.
const RATE_SPAN_MAX_NS: u64 = 20_000_000_000;
/// A measured rate that differs from the nominal one by more than one part in this many is a clock that
/// jumped.
const RATE_TOLERANCE: u64 = 16;
/// Times this far beyond the last anchor are invalid and do not affect later anchors.
const REACH_MAX_NS: u64 = 600_000_000_000;
/// The most nodes; beyond that the oldest half is dropped.
const NODES_MAX: usize = 1 << 16;

/// A point of the map, and the rate from there to the next.
#[derive(Clone, Copy, Debug)]
struct Node {
    at: u64,
    ns: u64,
    rate: u64,
}

impl Node {
    fn map(&self, at: u64) -> u64 {
        if at >= self.at {
            self.ns.saturating_add(scale(at - self.at, self.rate))
        } else {
            self.ns.saturating_sub(scale(self.at - at, self.rate))
        }
    }
}

#[inline]
fn scale(units: u64, rate: u64) -> u64 {
    u64::try_from((u128::from(units) * u128::from(rate)) >> RATE_BITS).unwrap_or(u64::MAX)
}

fn rate_between(units: u64, ns: u64) -> u64 {
    u64::try_from((u128::from(ns) << RATE_BITS) / u128::from(units.max(1))).unwrap_or(u64::MAX)
}

/// A map from one clock to CLOCK_MONOTONIC that grows with its anchors.
#[derive(Clone, Debug)]
pub struct Timeline {
    nodes: Vec<Node>,
    nominal: u64,
    rate: u64,
    /// The largest input that was mapped beyond the last node.
    reached: u64,
    /// Two earlier anchors: the rate is measured from the reference, which the candidate replaces later.
    reference: Option<(u64, u64)>,
    candidate: Option<(u64, u64)>,
}

impl Timeline {
    /// A clock with this many units a second (0: nanoseconds) and no anchor.
    pub fn new(units_per_second: u64) -> Timeline {
        let nominal = match units_per_second {
            0 => UNIT_RATE,
            units => rate_between(units, 1_000_000_000),
        };
        Timeline { nodes: Vec::new(), nominal, rate: nominal, reached: 0, reference: None, candidate: None }
    }

    /// Whether anything can be mapped.
    pub fn is_anchored(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Maps a time to CLOCK_MONOTONIC; without an anchor, returns the input.
    #[inline]
    pub fn map(&mut self, at: u64) -> u64 {
        let Some(last) = self.nodes.last() else { return at };
        if at >= last.at {
            let ns = last.map(at);
            if at > self.reached && ns - last.ns <= REACH_MAX_NS {
                self.reached = at;
            }
            return ns;
        }
        let next = self.nodes.partition_point(|node| node.at <= at);
        self.nodes.get(next.saturating_sub(1)).map_or(at, |node| node.map(at))
    }

    /// A duration at the best rate known so far.
    #[inline]
    pub fn duration_ns(&self, units: u64) -> u64 {
        scale(units, self.rate)
    }

    /// Nanoseconds per unit, for display.
    pub fn ns_per_unit(&self) -> f64 {
        self.rate as f64 / UNIT_RATE as f64
    }

    /// Adds an anchor. An anchor before the last one is ignored.
    pub fn anchor(&mut self, at: u64, ns: u64) {
        self.learn_rate(at, ns);
        let rate = self.rate;
        let Some(last) = self.nodes.last_mut() else {
            self.nodes.push(Node { at, ns, rate });
            self.reached = at;
            return;
        };
        if at <= last.at {
            return;
        }
        // Times between the last node and `reached` were extrapolated and stay; the line to the new
        // anchor begins after them.
        let mut from = *last;
        if self.reached > last.at {
            from = Node { at: self.reached, ns: last.map(self.reached), rate };
        }
        if from.at >= at {
            // Times beyond this anchor were already computed: only its rate can be used.
            self.nodes.push(from);
        } else {
            let ns = ns.max(from.ns);
            from.rate = rate_between(at - from.at, ns - from.ns);
            if from.at == last.at {
                *last = from
            } else {
                self.nodes.push(from)
            }
            self.nodes.push(Node { at, ns, rate });
            self.reached = at;
        }
        if self.nodes.len() > NODES_MAX {
            self.nodes.drain(..NODES_MAX / 2);
        }
    }

    fn learn_rate(&mut self, at: u64, ns: u64) {
        let Some((first_at, first_ns)) = self.reference else {
            self.reference = Some((at, ns));
            return;
        };
        let span_ns = ns.saturating_sub(first_ns);
        if at <= first_at || span_ns < RATE_SPAN_MIN_NS {
            return;
        }
        let rate = rate_between(at - first_at, span_ns);
        if rate.abs_diff(self.nominal) <= self.nominal / RATE_TOLERANCE {
            self.rate = rate;
        } else {
            // One of the clocks stopped or jumped (suspend): measure again from here.
            self.reference = Some((at, ns));
            self.candidate = None;
            return;
        }
        if span_ns >= RATE_SPAN_MAX_NS {
            self.reference = self.candidate.or(Some((at, ns)));
            self.candidate = Some((at, ns));
        } else if self.candidate.is_none() && span_ns >= RATE_SPAN_MAX_NS / 2 {
            self.candidate = Some((at, ns));
        }
    }
}

/// All clocks of a process.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    /// `None` if ticks are nanoseconds of CLOCK_MONOTONIC.
    ticks: Option<Timeline>,
    /// Device record clocks by epoch, latest last.
    devices: Vec<(u32, Timeline)>,
    start_monotonic_ns: u64,
    start_realtime_ns: u64,
}

/// The most epochs whose device clock is remembered.
const EPOCHS_MAX: usize = 16;

impl Clocks {
    pub fn new(begin: &crate::batch::ProcessBegin) -> Clocks {
        let ticks = (begin.tick_kind != tick::MONOTONIC_NS).then(|| {
            let mut timeline = Timeline::new(begin.ticks_per_second);
            timeline.anchor(begin.start_ticks, begin.start_monotonic_ns);
            timeline
        });
        Clocks {
            ticks,
            devices: Vec::new(),
            start_monotonic_ns: begin.start_monotonic_ns,
            start_realtime_ns: begin.start_realtime_ns,
        }
    }

    pub fn anchor(&mut self, anchor: &Anchor) {
        if let Some(ticks) = &mut self.ticks {
            ticks.anchor(anchor.ticks, anchor.monotonic_ns);
        }
        if anchor.device_ns == 0 {
            return;
        }
        let known = self.devices.iter().position(|(epoch, _)| *epoch == anchor.epoch);
        let at = known.unwrap_or_else(|| {
            if self.devices.len() >= EPOCHS_MAX {
                self.devices.remove(0);
            }
            self.devices.push((anchor.epoch, Timeline::new(0)));
            self.devices.len() - 1
        });
        if let Some((_, timeline)) = self.devices.get_mut(at) {
            timeline.anchor(anchor.device_ns, anchor.monotonic_ns);
        }
    }

    #[inline]
    pub fn monotonic_ns(&mut self, ticks: u64) -> u64 {
        self.ticks.as_mut().map_or(ticks, |timeline| timeline.map(ticks))
    }

    #[inline]
    pub fn duration_ns(&self, ticks: u64) -> u64 {
        self.ticks.as_ref().map_or(ticks, |timeline| timeline.duration_ns(ticks))
    }

    pub fn ns_per_tick(&self) -> f64 {
        self.ticks.as_ref().map_or(1.0, Timeline::ns_per_unit)
    }

    /// Maps a device time to CLOCK_MONOTONIC by the anchors of its epoch, else of the latest epoch. Without
    /// any anchor, the device's clock is assumed to be the nearer of the two system clocks.
    #[inline]
    pub fn device_to_monotonic_ns(&mut self, epoch: u32, device_ns: u64) -> u64 {
        let at = self.devices.iter().rposition(|(e, _)| *e == epoch);
        let known = match at {
            Some(at) => self.devices.get_mut(at),
            None => self.devices.last_mut(),
        };
        if let Some((_, timeline)) = known {
            return timeline.map(device_ns);
        }
        let from_realtime = device_ns.abs_diff(self.start_realtime_ns);
        if from_realtime < device_ns.abs_diff(self.start_monotonic_ns) {
            device_ns.saturating_sub(self.start_realtime_ns).saturating_add(self.start_monotonic_ns)
        } else {
            device_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A counter of 2.5 GHz that is believed to run at 2.4, first read at 1 000 s.
    const TRUE_HZ: u64 = 2_500_000_000;
    const START_NS: u64 = 1_000_000_000_000;

    fn ticks_at(ns: u64) -> u64 {
        (u128::from(ns) * u128::from(TRUE_HZ) / 1_000_000_000) as u64
    }

    fn timeline() -> Timeline {
        let mut timeline = Timeline::new(2_400_000_000);
        timeline.anchor(ticks_at(START_NS), START_NS);
        timeline
    }

    #[test]
    fn nominal_rate_holds_before_the_second_anchor() {
        let mut timeline = timeline();
        let second = timeline.map(ticks_at(START_NS) + 2_400_000_000);
        assert!(second.abs_diff(START_NS + 1_000_000_000) <= 1, "{second}");
    }

    #[test]
    fn second_anchor_corrects_the_rate() {
        let mut timeline = timeline();
        timeline.anchor(ticks_at(START_NS + 1_000_000_000), START_NS + 1_000_000_000);
        for ns in [0, 300_000_000, 999_999_999, 1_500_000_000, 30_000_000_000] {
            let mapped = timeline.map(ticks_at(START_NS + ns));
            assert!(mapped.abs_diff(START_NS + ns) <= 40, "{ns} {mapped}");
        }
        assert!(timeline.duration_ns(2_500_000).abs_diff(1_000_000) <= 1);
    }

    #[test]
    fn time_once_given_stays_and_the_error_is_gone_after_the_next_anchor() {
        let mut timeline = timeline();
        let early = ticks_at(START_NS + 900_000_000);
        let given = timeline.map(early);
        timeline.anchor(ticks_at(START_NS + 1_000_000_000), START_NS + 1_000_000_000);
        assert_eq!(timeline.map(early), given);
        let later = START_NS + 1_100_000_000;
        assert!(timeline.map(ticks_at(later)).abs_diff(later) < 20);
    }

    #[test]
    fn drift_is_followed() {
        // The rate changes by 50 parts in a million after 30 s; anchors come every second.
        let mut timeline = Timeline::new(1_000_000_000);
        let truth = |units: u64| {
            if units < 30_000_000_000 { units } else { units + (units - 30_000_000_000) / 20_000 }
        };
        for second in 0..90u64 {
            timeline.anchor(second * 1_000_000_000, truth(second * 1_000_000_000));
            let ahead = second * 1_000_000_000 + 900_000_000;
            let error = timeline.map(ahead).abs_diff(truth(ahead));
            assert!(error <= 50_000, "{second}: {error}");
            assert!(second < 60 || error <= 100, "{second}: {error}");
        }
    }

    #[test]
    fn suspended_clock_does_not_spoil_the_rate() {
        let mut timeline = timeline();
        timeline.anchor(ticks_at(START_NS + 1_000_000_000), START_NS + 1_000_000_000);
        timeline.anchor(ticks_at(START_NS + 2_000_000_000), START_NS + 9_000_000_000);
        assert!(timeline.duration_ns(2_500_000).abs_diff(1_000_000) <= 1);
    }

    #[test]
    fn invalid_times_do_not_affect_later_anchors() {
        let mut timeline = timeline();
        timeline.map(u64::MAX);
        let later = START_NS + 1_000_000_000;
        timeline.anchor(ticks_at(later), later);
        assert!(timeline.map(ticks_at(later)).abs_diff(later) <= 1);
    }

    fn anchor(device_ns: u64, monotonic_ns: u64, epoch: u32) -> Anchor {
        Anchor { ticks: monotonic_ns, monotonic_ns, realtime_ns: 0, device_ns, spread_ticks: 0, epoch }
    }

    #[test]
    fn epochs_have_their_own_device_clocks() {
        let mut clocks = Clocks::new(&crate::batch::ProcessBegin::default());
        clocks.anchor(&anchor(5_000, 1_000, 0));
        clocks.anchor(&anchor(90_000, 2_000, 1));
        assert_eq!(clocks.device_to_monotonic_ns(0, 5_500), 1_500);
        assert_eq!(clocks.device_to_monotonic_ns(1, 90_500), 2_500);
        assert_eq!(clocks.device_to_monotonic_ns(7, 90_500), 2_500);
    }

    #[test]
    fn device_clocks_without_anchors_are_the_nearer_system_clock() {
        let begin = crate::batch::ProcessBegin {
            start_monotonic_ns: 1_000_000,
            start_realtime_ns: 1_700_000_000_000_000_000,
            ..Default::default()
        };
        let mut clocks = Clocks::new(&begin);
        assert_eq!(clocks.device_to_monotonic_ns(0, 1_700_000_000_000_000_500), 1_000_500);
        assert_eq!(clocks.device_to_monotonic_ns(0, 2_000_000), 2_000_000);
    }

    proptest! {
        #[test]
        fn any_anchors_and_times_keep_the_map_monotone(
            steps in prop::collection::vec((any::<bool>(), 0u64..1 << 40, 0u64..1 << 40), 1..40),
            hertz in 0u64..1 << 34,
        ) {
            let mut timeline = Timeline::new(hertz);
            let mut asked = Vec::new();
            for (is_anchor, at, ns) in steps {
                if is_anchor { timeline.anchor(at, ns) } else if timeline.is_anchored() { asked.push(at) }
                let given: Vec<_> = asked.iter().map(|at| timeline.map(*at)).collect();
                let mut pairs: Vec<_> = asked.iter().zip(&given).collect();
                pairs.sort();
                prop_assert!(pairs.is_sorted_by_key(|(_, ns)| **ns), "{pairs:?}");
            }
        }

        #[test]
        fn hostile_values_do_not_panic(values in prop::collection::vec(any::<(u64, u64)>(), 1..20), hertz: u64) {
            let mut timeline = Timeline::new(hertz);
            for (at, ns) in values {
                timeline.anchor(at, ns);
                timeline.map(at.wrapping_mul(31));
                timeline.duration_ns(ns);
            }
        }
    }
}
