//! Clocks: ticks, and the anchors that relate them to the other clocks.
//!
//! Host events are stamped in ticks of one declared clock. An anchor reads that clock and the others at the
//! same moment; the collector converts times by the anchors before and after them.

use crate::cell::{Cell, kind};

/// What a tick is.
pub mod tick {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub const MONOTONIC_NS: u32 = 1;
    /// The processor's invariant time-stamp counter.
    pub const INVARIANT_TSC: u32 = 2;
}

/// Why device times are switched.
pub mod cause {
    pub const ORDER: u8 = 0;
    pub const SCHEDULED: u8 = 1;
    /// Something new was launched while device times were off.
    pub const TRIGGERED: u8 = 2;
}

/// The readings of every clock at one moment. One cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Anchor {
    pub ticks: u64,
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME.
    pub realtime_ns: u64,
    /// The device record clock; 0 while there is none.
    pub device_ns: u64,
    /// Ticks between the first and the last of the readings: the largest error between two of them.
    pub spread_ticks: u32,
    /// The epoch of the device record clock that `device_ns` belongs to.
    pub epoch: u32,
}

impl Anchor {
    pub fn to_cell(&self) -> Cell {
        let mut cell = Cell::new(kind::ANCHOR, 1, 0);
        cell.put_u32(4, self.spread_ticks);
        cell.put_u64(8, self.ticks);
        cell.put_u64(16, self.monotonic_ns);
        cell.put_u64(24, self.realtime_ns);
        cell.put_u64(32, self.device_ns);
        cell.put_u32(40, self.epoch);
        cell
    }

    pub fn from_cell(cell: &Cell) -> Anchor {
        Anchor {
            spread_ticks: cell.u32_at(4),
            ticks: cell.u64_at(8),
            monotonic_ns: cell.u64_at(16),
            realtime_ns: cell.u64_at(24),
            device_ns: cell.u64_at(32),
            epoch: cell.u32_at(40),
        }
    }
}

/// Entry kinds of the stream itself that are neither calls nor records.
pub mod mark {
    use super::{Cell, kind};

    /// From here on the ring belongs to this thread. One cell.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct ThreadBegin {
        /// Thread definition.
        pub thread: u32,
        pub ticks: u64,
    }

    impl ThreadBegin {
        pub fn to_cell(&self) -> Cell {
            let mut cell = Cell::new(kind::THREAD_BEGIN, 1, 0);
            cell.put_u32(4, self.thread);
            cell.put_u64(8, self.ticks);
            cell
        }

        pub fn from_cell(cell: &Cell) -> ThreadBegin {
            ThreadBegin { thread: cell.u32_at(4), ticks: cell.u64_at(8) }
        }
    }

    /// From here on this ring's device records belong to another epoch of correlation ids. One cell.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct EpochBegin {
        pub epoch: u32,
        pub ticks: u64,
    }

    impl EpochBegin {
        pub fn to_cell(&self) -> Cell {
            let mut cell = Cell::new(kind::EPOCH_BEGIN, 1, 0);
            cell.put_u32(4, self.epoch);
            cell.put_u64(8, self.ticks);
            cell
        }

        pub fn from_cell(cell: &Cell) -> EpochBegin {
            EpochBegin { epoch: cell.u32_at(4), ticks: cell.u64_at(8) }
        }
    }

    /// From here on the process records, or is paused. One cell, in the service thread's ring.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Recording {
        pub is_on: bool,
        /// 0: since the process's session began.
        pub ticks: u64,
    }

    impl Recording {
        pub fn to_cell(&self) -> Cell {
            let mut cell = Cell::new(kind::RECORDING, 1, 0);
            cell.put_u8(4, self.is_on.into());
            cell.put_u64(8, self.ticks);
            cell
        }

        pub fn from_cell(cell: &Cell) -> Recording {
            Recording { is_on: cell.u8_at(4) != 0, ticks: cell.u64_at(8) }
        }
    }

    /// From here on the process takes device times, or none. One cell, in the service thread's ring.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct DeviceTimes {
        pub is_on: bool,
        /// One of [`super::cause`].
        pub cause: u8,
        /// Begin of a window: CUPTI's enable has returned. End: what has not returned is not in the window;
        /// CUPTI's disable comes later. 0: since the process's session began.
        pub ticks: u64,
        /// The window's number as in [`crate::call::Call::window`]; 0 for none.
        pub window: u32,
        /// How long windows are from here on, and the mean time from one's start to the next one's.
        pub on_us: u32,
        pub mean_us: u32,
        /// Begin of a window: how long switching on took, and switching off at the end of the one before.
        pub enable_ns: u32,
        pub disable_ns: u32,
    }

    impl DeviceTimes {
        pub fn to_cell(&self) -> Cell {
            let mut cell = Cell::new(kind::DEVICE_TIMES, 1, 0);
            cell.put_u8(4, self.is_on.into());
            cell.put_u8(5, self.cause);
            cell.put_u64(8, self.ticks);
            cell.put_u32(16, self.window);
            cell.put_u32(20, self.on_us);
            cell.put_u32(24, self.mean_us);
            cell.put_u32(28, self.enable_ns);
            cell.put_u32(32, self.disable_ns);
            cell
        }

        pub fn from_cell(cell: &Cell) -> DeviceTimes {
            DeviceTimes {
                is_on: cell.u8_at(4) != 0,
                cause: cell.u8_at(5),
                ticks: cell.u64_at(8),
                window: cell.u32_at(16),
                on_us: cell.u32_at(20),
                mean_us: cell.u32_at(24),
                enable_ns: cell.u32_at(28),
                disable_ns: cell.u32_at(32),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::mark::*;
    use super::*;

    #[test]
    fn marks_round_trip() {
        let anchor =
            Anchor { ticks: 1, monotonic_ns: 2, realtime_ns: 3, device_ns: 4, spread_ticks: 5, epoch: 6 };
        assert_eq!(Anchor::from_cell(&anchor.to_cell()), anchor);
        let begin = ThreadBegin { thread: 7, ticks: 8 };
        assert_eq!(ThreadBegin::from_cell(&begin.to_cell()), begin);
        let epoch = EpochBegin { epoch: 9, ticks: 10 };
        assert_eq!(EpochBegin::from_cell(&epoch.to_cell()), epoch);
        for is_on in [false, true] {
            let recording = Recording { is_on, ticks: 11 };
            assert_eq!(Recording::from_cell(&recording.to_cell()), recording);
            let times = DeviceTimes {
                is_on,
                cause: cause::TRIGGERED,
                ticks: 1 << 40,
                window: 12,
                on_us: 13,
                mean_us: 14,
                enable_ns: 15,
                disable_ns: 16,
            };
            assert_eq!(DeviceTimes::from_cell(&times.to_cell()), times);
        }
    }
}
