//! Tests of all modules: their tables agree with each other, functions return the expected values, and programs
//! that use them load and run.

mod dynamic;
mod functions;
mod geoip2;
mod host;
mod names_table;
mod programs;
mod redis;
mod signatures;
mod sites;
