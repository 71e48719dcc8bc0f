//! Status codes of the management protocol.

/// The line could not be read as words.
pub const SYNTAX: u16 = 100;
/// No such command.
pub const UNKNOWN: u16 = 101;
/// The command exists but not here.
pub const UNIMPLEMENTED: u16 = 102;
/// Too few arguments.
pub const TOO_FEW: u16 = 104;
/// Too many arguments.
pub const TOO_MANY: u16 = 105;
/// An argument is wrong.
pub const PARAM: u16 = 106;
/// Authentication is required, or the thing is not allowed.
pub const AUTH: u16 = 107;
/// Done.
pub const OK: u16 = 200;
/// Done, but the reply was cut.
pub const TRUNCATED: u16 = 201;
/// Not possible now.
pub const CANT: u16 = 300;
/// The other process does not answer.
pub const COMMS: u16 = 400;
/// The connection is being closed.
pub const CLOSE: u16 = 500;
