//! A `libnvidia-ml.so.1` whose devices come from a script: values, ramps, errors, losses, slow calls.
//!
//! The script is the file that `GPUTRACE_SIM_NVML` names, or else the one beside the library with `.script`
//! behind the library's name. It is read at each `nvmlInit_v2`. `sim/README.md` describes it.

mod abi;
mod answer;
mod call;
mod events;
mod links;
mod processes;
mod script;
mod state;
mod system;
mod value;
mod values;
