//! The parts of a module (vmod): a name, and the functions of its interface. The interface is a text beside the module
//! (`lacquer_vmods::catalogue`). The author of a module needs only this page.
//!
//! ```ignore
//! // $Module greeter 3 "Says hello"
//! // $Function STRING hello(STRING name, BOOL loud = 0)
//! pub struct Greeter;
//!
//! impl Module for Greeter {
//!     fn name(&self) -> &'static str { "greeter" }
//!     fn functions(&self) -> &'static [(&'static str, Func)] { &[("hello", hello)] }
//! }
//!
//! fn hello<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<Value<'a>, ModuleError> {
//!     let name = args.str(0).ok_or("hello(): no name")?;           // fails the transaction
//!     let text = ctx.copy(&[b"hello ", name].concat())?;           // lives as long as the task
//!     Ok(Value::Str(Some(text)))                                   // VOID: Ok(Value::Absent)
//! }
//! ```
//!
//! **Arguments** are checked, converted and completed with defaults, one for each parameter that is not PRIV_*;
//! an optional one (`[INT n]`) that was not given is `Absent` ([`Args::is_given`]). BYTES, DURATION and TIME
//! are read like INT and REAL. **Values** live as long as the task (`'a`): return constants, arguments, or results of
//! [`Ctx::copy`], [`Ctx::join`], [`Ctx::ip`], [`Ctx::blob`] and [`Ctx::blob_of`], which are in the workspace.
//!
//! **Failure**: `Err(text)` (from `&str` or `String`) logs `VCL_Error` and fails the transaction;
//! [`Ctx::fail`] does the same and lets the function return a value. To report without failing, write to the log.
//!
//! **State**, identified by a type of the module's own and a `key` that distinguishes several of one type (0, or the
//! address of the object's state):
//! - PRIV_TASK: [`Ctx::task`] `ctx.task::<T>(key) -> &mut T`; PRIV_TOP: [`Ctx::top`] in the same way;
//! - PRIV_CALL: [`Ctx::call_state`] `ctx.call_state::<T>(args)? -> &'a T`, shared by all threads;
//! - PRIV_VCL: [`Ctx::vcl_state`] `ctx.vcl_state::<T>(key) -> Arc<T>`, shared by all threads;
//! - objects: the constructor returns an `Arc`, methods read it with [`Args::this`] `args.this::<T>()? -> &'a T`,
//!   the name in VCL is [`Args::object_name`].
//!
//! **The transaction**: `ctx.host` has all that a [`Host`](crate::Host) offers. Headers by a HEADER argument:
//! `let (http, name) = args.header(0)?; ctx.header(http, name)`. To change one, use [`Ctx::set_header`] or
//! [`Ctx::unset_header`] with the [`HeaderName`](crate::HeaderName) that [`Ctx::named`] returns.
//! Log: [`Ctx::log`] with the tag's number (`lacquer_shm::vsl::Tag::VCL_Log as u8`).
//!
//! **Declarations of the program**: [`Args::regex`] can be matched with `ctx.host.regex_limits()`;
//! [`Args::acl`] with [`Ctx::acl_match`]; [`Args::sub`] with [`Ctx::call_sub`] (return at once after it: the
//! sub may have returned an action) and [`Ctx::check_sub`]; backends are indices into `ctx.vcl.directors`,
//! where a module adds its own [`Director`](crate::Director)s: `let id = ctx.vcl.directors.add(director)`.
//!
//! **Counters**: [`Instance::make_counters`](crate::Instance::make_counters) on `ctx.vcl` creates counters of an object,
//! whose set is a table in `lacquer_shm::vsc`. Store them in the object, show them at `Event::Warm`, hide them at
//! `Event::Cold`.
//!
//! **Waiting**: list the function in [`Module::suspends`]. Then [`Ctx::block_on`] waits for a future, and
//! [`Ctx::block_on_host`] for one that the host creates. [`Ctx::cache_req_body`] is the common case. The task's
//! thread runs other tasks meanwhile, so hold no lock or `RefCell` borrow across a wait.

pub use super::{BackendMaker, Constructor, Ctx, Event, Func, Module, ObjectType};
pub use crate::args::{Args, ModuleError};
