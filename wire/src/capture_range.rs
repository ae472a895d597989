//! Capture ranges: which part of a program a session records, as `GPUTRACE_CAPTURE_RANGE` and
//! `GPUTRACE_CAPTURE_RANGE_END` say it. The command line checks both, and the preload library acts on them.

/// What a range is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureRange<'t> {
    /// From cuProfilerStart to cuProfilerStop.
    Profiler,
    /// An NVTX range of that name, in the domain of that name or in the one without.
    Nvtx { name: &'t str, domain: Option<&'t str> },
    /// From the launch of that number to the one of that, both included; the first is 1.
    Launches { from: u64, to: u64 },
}

/// What follows a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureRangeEnd {
    /// Nothing more is recorded after the first range.
    Stop,
    /// The same, and the program is asked to end.
    StopShutdown,
    /// So many ranges are recorded.
    Repeat(u32),
}

impl CaptureRange<'_> {
    /// `cudaProfilerApi`, `nvtx:NAME`, `nvtx:NAME@DOMAIN` or `launches:FROM-TO`.
    ///
    /// # Errors
    /// What is wrong with the text, for users.
    pub fn parse(text: &str) -> Result<CaptureRange<'_>, &'static str> {
        if text == "cudaProfilerApi" {
            return Ok(CaptureRange::Profiler);
        }
        if let Some(range) = text.strip_prefix("nvtx:") {
            let (name, domain) = match range.rsplit_once('@') {
                Some((name, domain)) => (name, Some(domain)),
                None => (range, None),
            };
            return match (name, domain) {
                ("", _) => Err("nvtx: lacks the range's name"),
                (_, Some("")) => Err("the domain's name is missing after @"),
                _ => Ok(CaptureRange::Nvtx { name, domain }),
            };
        }
        let Some(numbers) = text.strip_prefix("launches:") else {
            return Err("a range is cudaProfilerApi, nvtx:NAME, nvtx:NAME@DOMAIN or launches:FROM-TO");
        };
        let number = |text: &str| text.parse::<u64>().ok();
        let (from, to) = numbers.split_once('-').unwrap_or(("", ""));
        match (number(from), number(to)) {
            (Some(0), Some(_)) => Err("launches are counted from 1"),
            (Some(from), Some(to)) if from > to => Err("FROM is greater than TO"),
            (Some(from), Some(to)) => Ok(CaptureRange::Launches { from, to }),
            _ => Err("launches:FROM-TO needs two whole numbers, such as launches:100-199"),
        }
    }
}

impl CaptureRangeEnd {
    /// `stop`, `stop-shutdown` or `repeat:N`.
    ///
    /// # Errors
    /// What is wrong with the text, for users.
    pub fn parse(text: &str) -> Result<CaptureRangeEnd, &'static str> {
        match (text, text.strip_prefix("repeat:").map(str::parse)) {
            ("stop", _) => Ok(CaptureRangeEnd::Stop),
            ("stop-shutdown", _) => Ok(CaptureRangeEnd::StopShutdown),
            (_, Some(Ok(0))) => Err("repeat:0 would record no range"),
            (_, Some(Ok(ranges))) => Ok(CaptureRangeEnd::Repeat(ranges)),
            _ => Err("the end of a range is stop, stop-shutdown or repeat:N, with N ranges"),
        }
    }

    /// How many ranges are recorded.
    pub fn ranges(self) -> u32 {
        if let CaptureRangeEnd::Repeat(ranges) = self { ranges } else { 1 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn range_is_one_of_three() {
        let nvtx = |name, domain| Ok(CaptureRange::Nvtx { name, domain });
        for (text, range) in [
            ("cudaProfilerApi", Ok(CaptureRange::Profiler)),
            ("nvtx:step", nvtx("step", None)),
            ("nvtx:a@b@lib", nvtx("a@b", Some("lib"))),
            ("launches:1-1", Ok(CaptureRange::Launches { from: 1, to: 1 })),
            ("launches:10-200", Ok(CaptureRange::Launches { from: 10, to: 200 })),
        ] {
            assert_eq!(CaptureRange::parse(text), range, "{text}");
        }
        for senseless in [
            "",
            "profiler",
            "nvtx",
            "nvtx:",
            "nvtx:@lib",
            "nvtx:a@",
            "launches:",
            "launches:5",
            "launches:5-4",
            "launches:0-4",
            "launches:a-b",
            "launches:-4",
            "launches:1-99999999999999999999",
        ] {
            assert!(CaptureRange::parse(senseless).is_err(), "{senseless}");
        }
    }

    #[test]
    fn end_is_one_of_three() {
        assert_eq!(CaptureRangeEnd::parse("repeat:3").map(CaptureRangeEnd::ranges), Ok(3));
        assert_eq!(CaptureRangeEnd::parse("stop-shutdown").map(CaptureRangeEnd::ranges), Ok(1));
        assert_eq!(CaptureRangeEnd::parse("stop"), Ok(CaptureRangeEnd::Stop));
        for senseless in ["", "repeat", "repeat:", "repeat:0", "repeat:-1", "repeat:x", "shutdown"] {
            assert!(CaptureRangeEnd::parse(senseless).is_err(), "{senseless}");
        }
    }
}
