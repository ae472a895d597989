//! End-to-end tests: programs of twenty lines run under the built tool on the simulated device,
//! asserted through the command line. One module a subject.

mod harness;

mod bad_collector;
mod bad_input;
mod bare_use;
mod control;
mod counting;
mod descriptors;
mod device_times;
mod doctor_and_lib;
mod endings;
mod flight_recorder;
mod forbidden;
mod graphs;
mod group_by;
mod handlers;
mod hostile_programs;
mod in_flight;
mod killed;
mod limits;
mod linkage;
mod live_and_file;
mod nothing;
mod nvtx;
mod other_users;
mod outputs;
mod plugins;
mod processes;
mod python;
mod python_flame;
mod python_graphs;
mod python_stacks;
mod ranks;
mod recorded_traces;
mod resolution;
mod secrets;
mod sharing;
mod signals;
mod simulated_device;
mod standing;
mod surroundings;
mod threads;
mod traps;
mod variables;
mod workers;
