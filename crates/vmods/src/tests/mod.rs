//! Tests over all modules: the tables agree with each other, and functions run in a host of memory.

mod coverage;
mod host;
mod names_table;
mod run;
