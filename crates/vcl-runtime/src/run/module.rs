//! The parts of a module (vmod): a name, its signatures as text, and the functions behind them. A module's author
//! needs this page only.
//!
//! ```ignore
//! pub struct Greeter;
//!
//! impl Module for Greeter {
//!     fn name(&self) -> &'static str { "greeter" }
//!     fn signatures(&self) -> &'static str {
//!         "$Module greeter 3 \"Says hello\"\n$Function STRING hello(STRING name, BOOL loud = 0)"
//!     }
//!     fn functions(&self) -> &'static [(&'static str, Func)] { &[("hello", hello)] }
//! }
//!
//! fn hello<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<Value<'a>, ModuleError> {
//!     let name = args.str(0).ok_or("hello(): there is nobody")?;   // fails the transaction
//!     let text = ctx.copy(&[b"hello ", name].concat())?;           // lives as long as the task
//!     Ok(Value::Str(Some(text)))                                   // VOID: Ok(Value::Absent)
//! }
//! ```
//!
//! **Arguments** come checked, converted and with defaults filled in, one per parameter that is not PRIV_*;
//! an optional one (`[INT n]`) that was not given is `Absent` ([`Args::is_given`]). BYTES, DURATION and TIME
//! read like INT and REAL. **Values** live as long as the task (`'a`): return constants, arguments, or what
//! [`Ctx::copy`], [`Ctx::join`], [`Ctx::ip`], [`Ctx::blob`] and [`Ctx::blob_of`] put into the workspace.
//!
//! **Failure**: `Err(text)` (from `&str` or `String`) logs `VCL_Error` and fails the transaction;
//! [`Ctx::fail`] does so too and lets the function return a value. To complain without failing, log.
//!
//! **State**, the type being the module's own and `key` telling apart several of one type (0, or the address
//! of the object's state):
//! - PRIV_TASK: [`Ctx::task`] `ctx.task::<T>(key) -> &mut T`; PRIV_TOP: [`Ctx::top`] likewise;
//! - PRIV_CALL: [`Ctx::call_state`] `ctx.call_state::<T>(args)? -> &'a T`, shared by all threads;
//! - PRIV_VCL: [`Ctx::vcl_state`] `ctx.vcl_state::<T>(key) -> Arc<T>`, shared by all threads;
//! - objects: the constructor returns an `Arc`, methods get it by [`Args::this`] `args.this::<T>()? -> &'a T`,
//!   the name in VCL is [`Args::object_name`].
//!
//! **The transaction**: `ctx.host` is everything a [`Host`](crate::Host) offers. Headers by a HEADER argument:
//! `let (http, name) = args.header(0)?; ctx.header(http, name)`; to change one: [`Ctx::set_header`],
//! [`Ctx::unset_header`] with the [`HeaderName`](crate::HeaderName) that [`Ctx::named`] makes of it.
//! Log: [`Ctx::log`] with the tag's number (`lacquer_shm::vsl::Tag::VCL_Log as u8`).
//!
//! **Declarations of the program**: [`Args::regex`] is ready to match with `ctx.host.regex_limits()`;
//! [`Args::acl`] with [`Ctx::acl_match`]; [`Args::sub`] with [`Ctx::call_sub`] (after it, return at once: the
//! sub may have returned an action) and [`Ctx::check_sub`]; backends are numbers into `ctx.vcl.directors`,
//! where a module adds its own [`Director`](crate::Director)s: `let id = ctx.vcl.directors.add(director)`.
//!
//! **Waiting**: name the function in [`Module::suspends`], then [`Ctx::block_on`] waits for a future, and
//! [`Ctx::block_on_host`] for one that the host makes. [`Ctx::cache_req_body`] is the common case. The task's
//! thread continues with other tasks meanwhile, so hold no lock or `RefCell` borrow across it.

pub use super::{Constructor, Ctx, Event, Func, Module, ObjectType};
pub use crate::args::{Args, ModuleError};
