//! Compiles VCL to machine code with Cranelift. Each subroutine of a prepared [`Instance`] is compiled and
//! run, if necessary on a coroutine that can wait for the reactor.
//!
//! ```ignore
//! let mut instance = Instance::new(name, program, &modules, regex_jit)?;
//! instance.add_backends(|declared| make_director(declared));
//! let loaded = lacquer_vcl_native::compile(instance)?;
//! loaded.init(&mut host)?;                                       // vcl_init, objects
//! let action = loaded.run(Method::Hash, &mut Ctx::new(&mut host, loaded.instance()));
//! let action = loaded.run_suspendable(Method::Recv, &mut ctx).await;
//! ```

mod coroutine;
mod emit;
mod loaded;
mod memory;
mod reach;
mod rt;
mod split;

// Its feature of the workspace removes the messages of Cranelift from release builds.
use log as _;

pub use lacquer_vcl_runtime::{Ctx, Host, Instance};
pub use loaded::{LoadedVcl, compile};
