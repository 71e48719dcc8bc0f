//! Declarations: what stands at the top of a program beside its subroutines.

mod acl;
mod backend;
mod import;
mod probe;
