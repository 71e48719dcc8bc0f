//! Tests over all modules: the tables agree with each other, functions give what they should, and programs
//! that use them load and run.

mod functions;
mod geoip2;
mod host;
mod names_table;
mod programs;
mod signatures;
mod sites;
