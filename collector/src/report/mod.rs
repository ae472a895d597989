//! The report of an analysis: as data, as JSON, and as the summary that people read.
//!
//! Made once, at the end, from the model's totals and the aggregates. `docs/report-json.md` has the fields.

mod anomalies;
mod budget;
mod build;
mod calls;
mod device_metrics;
pub mod diff;
mod errors;
mod estimated;
mod excerpt;
mod failed_call;
mod failures;
mod figures;
mod findings;
mod graph_times;
mod idle;
mod inside;
mod json;
mod kernels;
mod lines;
mod memory;
mod memory_blocks;
mod memory_diff;
mod memory_page;
mod memory_state;
mod memory_timelines;
mod missing_times;
mod modules;
pub mod named;
mod occupancy;
mod operators;
mod part;
mod ranges;
mod recording;
mod slow_steps;
mod steps;
mod streams;
mod switched_times;
mod table;
mod text;
mod threads;
mod transfers;
mod words;

#[cfg(test)]
mod anomalies_tests;
#[cfg(test)]
mod errors_tests;
#[cfg(test)]
mod idle_tests;
#[cfg(test)]
mod occupancy_tests;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::label::units::{
    bytes, bytes as readable_bytes, count as grouped_count, duration as readable_time,
};
pub use anomalies::{AnomaliesReport, AnomalyReport, BesideReport};
pub use budget::{BudgetReport, mean_error};
pub use device_metrics::{
    DeviceMetricsReport, DeviceMomentReport, EnergyReport, LevelReport, ThrottledReport,
};
pub use errors::{AnswerReport, ErrorReport, ErrorsReport};
pub use estimated::{EstimateReport, EstimatedTime};
pub use excerpt::{ExcerptReport, SeriesReport, SizeLimitReport};
pub use failed_call::FailedCall;
pub use failures::{FailureReport, InFlightCall, InFlightReport};
pub use findings::{Confidence, Finding, FindingsReport, Saving};
pub use graph_times::{GraphReport, GraphTimesReport};
pub use idle::{IdleCause, IdleLine, IdleReport};
pub use inside::InsideReport;
pub use json::*;
pub use lines::{ChargedReport, CodeLocation, LineReport, NoLineReport};
pub use memory::{
    HolderReport, MemoryKindReport, MemoryLineReport, MemoryReport, ProcessMemoryReport, RefusalReport,
    RefusedBlocksReport, SizeReport, TimelineReport, UnmatchedFreesReport, leaked_sites,
};
pub use memory_blocks::{BlockDeviceReport, BlocksReport, SegmentReport, SegmentsReport};
pub use memory_diff::{MemoryDiff, MemoryLineDiff, MemorySide};
pub use memory_page::{MemoryPage, MemoryRows};
pub use memory_state::{DeviceUseReport, PoolReport};
pub use modules::{ModuleReport, ModulesReport, OutsideReport};
pub use occupancy::OccupancyReport;
pub use operators::{OperatorReport, OperatorsReport};
pub use part::PartReport;
pub use ranges::RangeReport;
pub use recording::{CaptureRangesReport, PausedReport, RecordedInterval};
pub use slow_steps::{LongKernelReport, SlowStepReport, StepPartReport};
pub use steps::StepsReport;
pub use streams::StreamReport;
pub use switched_times::{SwitchedTimesReport, WindowsReport};
pub use text::TextOptions;
pub use threads::ThreadReport;
pub use transfers::{MemoryCopyReport, MovedReport, PeerCopyReport, TransferReport};
