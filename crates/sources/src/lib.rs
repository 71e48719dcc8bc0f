//! Time and randomness. The engine reads no other clock and has no other source of random numbers, so that a simulated
//! world can control both.

#![deny(unsafe_code)]

pub mod clock;
pub mod random;
mod system;
