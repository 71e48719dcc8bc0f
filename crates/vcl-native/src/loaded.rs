//! A loaded VCL: the instance, its machine code and the functions that run it.

use std::sync::atomic::{AtomicBool, Ordering};

use lacquer_vcl::types::{Action, Method};
use lacquer_vcl_runtime::instance::SubFn;
use lacquer_vcl_runtime::{Ctx, Event, Host, Instance, Module};

use crate::coroutine;
use crate::emit::{self, Constants, Linked};
use crate::memory::Code;
use crate::reach;
use crate::split;

/// A program that is ready to run, shared by all threads. Dropping it releases the machine code, so every task that
/// runs it must hold it (in an `Arc`) until the task ends.
pub struct LoadedVcl {
    instance: Instance,
    methods: [Option<SubFn>; Method::COUNT],
    may_suspend: u32,
    /// The number of bytes of stack that the subs of each method need.
    stacks: Vec<usize>,
    /// Whether vcl_init has begun, so that vcl_fini has to run.
    begun: AtomicBool,
    /// Data that compiled code points to; it lives as long as the code.
    _constants: Vec<Constants>,
    _code: Code,
}

/// Compiles all subroutines. The instance's backends must have been added.
pub fn compile(mut instance: Instance) -> Result<LoadedVcl, String> {
    reach::check_depth(&instance.program)?;
    let may_suspend = reach::suspending_methods(&instance);
    split::long_subs(&mut instance.program.subs);
    reach::check_depth(&instance.program)?;
    let (Linked { code, subs, frames }, constants) = emit::program(&instance)?;
    let stacks = reach::stacks(&instance.program, &frames)?;
    let mut methods = [None; Method::COUNT];
    for (method, &sub) in methods.iter_mut().zip(&instance.program.methods) {
        *method = subs.get(sub as usize).copied();
    }
    // From now on the code replaces the bodies; only names and methods of the subs are still used.
    for sub in &mut instance.program.subs {
        sub.body = Vec::new();
    }
    // SAFETY: the code was just compiled from this instance, and is dropped with it.
    unsafe { instance.set_code(subs)? };
    let begun = AtomicBool::new(false);
    Ok(LoadedVcl { instance, methods, may_suspend, stacks, begun, _constants: constants, _code: code })
}

impl LoadedVcl {
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Returns whether the method's code may wait for the reactor. Otherwise [`run`](Self::run) suffices.
    pub fn may_suspend(&self, method: Method) -> bool {
        self.may_suspend & (1 << method as u32) != 0
    }

    /// Runs a method to its end. Functions that need to wait fail.
    pub fn run(&self, method: Method, ctx: &mut Ctx<'_>) -> Action {
        let mut code = 0;
        if let Some(sub) = self.methods[method as usize] {
            assert!(std::ptr::eq(ctx.vcl, &raw const self.instance), "the context belongs to another VCL");
            // SAFETY: the code lives as long as `self`, and was compiled from the context's instance.
            code = unsafe { sub(ctx) };
        }
        let code = if ctx.handling != 0 { ctx.handling } else { code };
        match (Action::from_code(code), method) {
            (Some(action), _) => action,
            (None, Method::Init | Method::Fini) => Action::Ok,
            (None, _) => {
                ctx.fail(&format!("{} ended without an action", method.sub_name()));
                Action::Fail
            }
        }
    }

    /// Runs a method. The reactor polls the work that it waits for. The future stays on its thread. If it is dropped
    /// before its end, the current wait fails and the rest runs at once.
    pub async fn run_suspendable(&self, method: Method, ctx: &mut Ctx<'_>) -> Action {
        if self.may_suspend(method) {
            let need = self.stacks.get(method as usize).copied().unwrap_or(0);
            coroutine::run(need, ctx, |ctx| self.run(method, ctx)).await
        } else {
            self.run(method, ctx)
        }
    }

    /// Passes an event to each module once, in the order of imports, or in reverse order for ends.
    pub fn event(&self, event: Event) -> Result<(), String> {
        let mut modules: Vec<_> = Vec::new();
        for &module in &self.instance.imports.modules {
            if !modules.iter().any(|m: &&dyn Module| m.name() == module.name()) {
                modules.push(module);
            }
        }
        if matches!(event, Event::Cold | Event::Discard) {
            modules.reverse();
        }
        for module in modules {
            module.event(&self.instance, event).map_err(|e| e.0)?;
        }
        Ok(())
    }

    /// Passes the event to the modules, runs vcl_init and checks that every object was created. If vcl_init
    /// fails, the host has the text (`Host::fail`); texts of other failures are returned. After a failure,
    /// [`fini`](Self::fini) must be called.
    pub fn init(&self, host: &mut dyn Host) -> Result<(), String> {
        self.event(Event::Load)?;
        self.begun.store(true, Ordering::Relaxed);
        let mut ctx = Ctx::new(host, &self.instance);
        if self.run(Method::Init, &mut ctx) != Action::Ok {
            return Err(String::new());
        }
        let made = self.instance.program.modules.objects.iter().zip(&self.instance.objects);
        for (object, state) in made {
            if state.get().is_none() && !object.null_ok {
                return Err(format!("Object {} not initialized", object.name));
            }
        }
        self.event(Event::Initialized)
    }

    /// Runs vcl_fini, if vcl_init has begun, and passes the event to the modules. Objects are dropped with the VCL.
    pub fn fini(&self, host: &mut dyn Host) {
        if self.begun.swap(false, Ordering::Relaxed) {
            let mut ctx = Ctx::new(host, &self.instance);
            self.run(Method::Fini, &mut ctx);
        }
        // An error of a module at its end has no consequence.
        let _ = self.event(Event::Discard);
    }
}
