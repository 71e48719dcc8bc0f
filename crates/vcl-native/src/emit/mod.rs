//! The code generator: one machine function for each subroutine, `extern "C" fn(&mut Ctx) -> u32`.
//!
//! The result is the code of the action that the sub returned, or 0 if it fell through to its caller.
//! Strings are pairs of pointer and length in registers; lists of strings and arguments of modules are
//! written to a scratch area of the stack frame. What is more than a few instructions is a call to
//! [`rt`](crate::rt); after those that can fail the code looks at `Ctx::handling` and leaves if it is set.

mod call;
mod constants;
mod expr;
mod link;
mod number;
mod stmt;
mod string;
mod sub;

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, Function, Signature, UserFuncName, types};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use lacquer_vcl_runtime::Instance;
use lacquer_vcl_runtime::instance::SubFn;

pub use constants::Constants;
use link::Linker;
use sub::SubEmitter;

use crate::memory::Code;
use crate::reach;

/// What the emitters of all subs share.
struct Shared<'p> {
    instance: &'p Instance,
    /// Which subs can be called dynamically; calls to them by name go the same checked way.
    dynamic: Vec<bool>,
    constants: Constants,
}

/// Compiles a program: the code, the entry of each sub, and the data that the code points to.
pub fn program(instance: &Instance) -> Result<(Code, Vec<SubFn>, Constants), String> {
    let isa = isa()?;
    let mut shared =
        Shared { instance, dynamic: reach::dynamic_subs(&instance.program), constants: Constants::default() };
    let mut linker = Linker::default();
    let mut context = Context::new();
    let mut builder_context = FunctionBuilderContext::new();
    let mut control = ControlPlane::default();
    for (index, sub) in instance.program.subs.iter().enumerate() {
        context.clear();
        context.func = Function::with_name_signature(
            UserFuncName::user(0, index as u32),
            signature(isa.default_call_conv()),
        );
        SubEmitter::emit(&mut context.func, &mut builder_context, &mut shared, isa.as_ref(), sub)?;
        let fault = |e| format!("Compiling sub {} failed: {e}", sub.name);
        let compiled = context.compile(isa.as_ref(), &mut control);
        compiled.map_err(|e| fault(format!("{:?}", e.inner)))?;
        let code = context.compiled_code().ok_or("The code generator gave no code")?;
        linker.add(code.code_buffer(), code.buffer.relocs(), &context.func.params).map_err(fault)?;
    }
    let (code, subs) = linker.finish()?;
    Ok((code, subs, shared.constants))
}

/// The signature of every sub.
fn signature(convention: CallConv) -> Signature {
    let mut signature = Signature::new(convention);
    signature.params.push(AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I32));
    signature
}

fn isa() -> Result<OwnedTargetIsa, String> {
    let mut flags = settings::builder();
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    let wanted = [
        // Both measured: this loads five times faster than "speed" with the better allocator, and runs as
        // fast, since most of VCL's time goes into what it calls.
        ("opt_level", "none"),
        ("regalloc_algorithm", "single_pass"),
        ("enable_verifier", verify),
        ("unwind_info", "false"),
        ("preserve_frame_pointers", "true"),
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
    ];
    for (name, value) in wanted {
        flags.set(name, value).map_err(|e| format!("Code generator setting {name}: {e}"))?;
    }
    let builder = cranelift_native::builder()?;
    builder.finish(settings::Flags::new(flags)).map_err(|e| format!("Code generator: {e}"))
}
