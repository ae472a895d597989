//! Sessions as a program has them: each test is a process of its own.

mod alone;
mod collector;
mod ends;
mod forks;
mod peer;
mod rings;
