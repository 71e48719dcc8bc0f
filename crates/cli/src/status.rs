//! Status codes of the management protocol.

/// The line cannot be split into words.
pub const SYNTAX: u16 = 100;
/// The command does not exist.
pub const UNKNOWN: u16 = 101;
/// The command exists but is not implemented here.
pub const UNIMPLEMENTED: u16 = 102;
/// Too few arguments.
pub const TOO_FEW: u16 = 104;
/// Too many arguments.
pub const TOO_MANY: u16 = 105;
/// An argument is wrong.
pub const PARAM: u16 = 106;
/// Authentication is required, or the action is not allowed.
pub const AUTH: u16 = 107;
/// Success.
pub const OK: u16 = 200;
/// Success, but the reply is truncated.
pub const TRUNCATED: u16 = 201;
/// The command is not possible in the current state.
pub const CANT: u16 = 300;
/// The other process does not reply.
pub const COMMS: u16 = 400;
/// The connection is being closed.
pub const CLOSE: u16 = 500;
