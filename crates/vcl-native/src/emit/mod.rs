//! The code generator: one machine function for each subroutine, `extern "C" fn(&mut Ctx) -> u32`.
//!
//! The result is the code of the action that the sub returned, or 0 if it reached its end and the caller continues.
//! Strings are pairs of pointer and length in registers; lists of strings and arguments of modules are
//! written to a scratch area of the stack frame. Operations of more than a few instructions are calls to
//! [`rt`](crate::rt). After calls that can fail, the code checks `Ctx::handling` and exits if it is set.

mod call;
mod constants;
mod expr;
mod link;
mod number;
mod stmt;
mod string;
mod sub;
mod vars;

use std::ops::Range;

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{Function, UserFuncName};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use lacquer_vcl::program::Sub;
use lacquer_vcl_runtime::Instance;

pub use constants::Constants;
pub use link::Linked;
use link::{Emitted, Linker};
use sub::{Shared, SubEmitter, signature};

use crate::reach;

/// Programs with more statements than this are compiled by several threads, if there are processors for them.
const ALONE: usize = 1000;
const MAX_THREADS: usize = 4;
/// Stack size in bytes; deep expressions are walked recursively.
const STACK: usize = 16 << 20;

/// The number of bytes of a frame above the pointer to it: that of the caller's, and the return address.
const FRAME_HEAD: usize = 16;

/// Compiles a program. Returns the code, and the data that it points to.
pub fn program(instance: &Instance) -> Result<(Linked, Vec<Constants>), String> {
    let isa = isa()?;
    let dynamic = reach::dynamic_subs(&instance.program);
    let shares = shares(&instance.program.subs);
    let compile = |share: Range<usize>| {
        let constants = Constants::default();
        compile_share(Shared { instance, dynamic: &dynamic, constants }, isa.as_ref(), share)
    };
    let compile = &compile;
    let compiled = std::thread::scope(|scope| {
        let (first, others) = shares.split_first().ok_or("A program without subs")?;
        let spawn = |share: &Range<usize>| {
            let (share, thread) = (share.clone(), std::thread::Builder::new().name("vcl-code".to_owned()));
            let thread = thread.stack_size(STACK).spawn_scoped(scope, move || compile(share));
            thread.map_err(|e| format!("No thread for the code generator: {e}"))
        };
        let others = others.iter().map(spawn).collect::<Result<Vec<_>, _>>()?;
        let mut all = vec![compile(first.clone())?];
        for thread in others {
            all.push(thread.join().map_err(|_| "The code generator panicked")??);
        }
        Ok::<_, String>(all)
    })?;
    let mut linker = Linker::default();
    let mut constants = Vec::new();
    for (functions, data) in compiled {
        for function in &functions {
            linker.add(function);
        }
        constants.push(data);
    }
    Ok((linker.finish()?, constants))
}

/// Splits the subs into ranges of similar size, one for each thread.
fn shares(subs: &[Sub]) -> Vec<Range<usize>> {
    let sizes: Vec<usize> = subs.iter().map(|sub| 1 + reach::statements(&sub.body)).collect();
    let all: usize = sizes.iter().sum();
    let threads = if all <= ALONE { 1 } else { MAX_THREADS.min(processors()) };
    let mut shares = Vec::new();
    let (mut start, mut done) = (0, 0);
    for (index, size) in sizes.iter().enumerate() {
        done += size;
        if done * threads >= all * (shares.len() + 1) {
            shares.push(start..index + 1);
            start = index + 1;
        }
    }
    shares
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn compile_share(
    mut shared: Shared<'_>,
    isa: &dyn TargetIsa,
    share: Range<usize>,
) -> Result<(Vec<Emitted>, Constants), String> {
    let mut functions = Vec::with_capacity(share.len());
    let mut context = Context::new();
    let mut builder_context = FunctionBuilderContext::new();
    let mut control = ControlPlane::default();
    for index in share {
        let sub = &shared.instance.program.subs[index];
        context.clear();
        context.func = Function::with_name_signature(
            UserFuncName::user(0, index as u32),
            signature(isa.default_call_conv()),
        );
        SubEmitter::emit(&mut context.func, &mut builder_context, &mut shared, isa, sub)?;
        let fault = |e| format!("Compiling sub {} failed: {e}", sub.name);
        let compiled = context.compile(isa, &mut control);
        compiled.map_err(|e| fault(format!("{:?}", e.inner)))?;
        let code = context.compiled_code().ok_or("The code generator returned no code")?;
        let frame = code.buffer.frame_layout().ok_or("The code generator returned no frame")?;
        let frame = FRAME_HEAD + frame.frame_to_fp_offset as usize;
        let emitted = Emitted::new(code.code_buffer(), code.buffer.relocs(), &context.func.params, frame);
        functions.push(emitted.map_err(fault)?);
    }
    Ok((functions, shared.constants))
}

fn isa() -> Result<OwnedTargetIsa, String> {
    let mut flags = settings::builder();
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    let wanted = [
        // Both were measured: these settings load five times faster than "speed" with the better allocator, and the
        // code runs as fast, because most of VCL's time is spent in the functions it calls.
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
