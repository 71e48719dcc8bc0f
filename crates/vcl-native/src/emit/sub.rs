//! The emitter of one subroutine: its frame, and its calls of the runtime and of other subs.

use std::net::SocketAddr;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, Block, ExtFuncData, ExternalName, FuncRef, Function, Inst, InstBuilder, MemFlagsData, SigRef,
    Signature, StackSlot, StackSlotData, StackSlotKind, Type, UserExternalName, Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetIsa};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use lacquer_vcl::program::{At, Sub};
use lacquer_vcl_runtime::{Blob, Ctx, Instance, Raw, Str, StrWords};

use super::constants::Constants;
use crate::rt;

/// The machine types of a Rust type that is passed to and from C functions.
pub trait Passed {
    const AS: &'static [Type];
}

macro_rules! passed {
    ($($type:ty => $as:expr;)+) => { $( impl Passed for $type { const AS: &'static [Type] = $as; } )+ };
}

passed! {
    () => &[];
    u32 => &[types::I32];
    i32 => &[types::I32];
    i64 => &[types::I64];
    u64 => &[types::I64];
    f64 => &[types::F64];
    *const u8 => &[types::I64];
    *const Str<'_> => &[types::I64];
    *const Raw => &[types::I64];
    &mut Raw => &[types::I64];
    *const SocketAddr => &[types::I64];
    *const Blob<'_> => &[types::I64];
    Str<'_> => &[types::I64, types::I64];
    StrWords => &[types::I64, types::I64];
}

const MAX_PREDECESSORS: usize = 64;

/// A VCL value as machine values.
#[derive(Clone, Copy, Debug)]
pub enum Val {
    /// No value, or an optional argument that was not given.
    None,
    /// An I8, 0 or 1.
    Bool(Value),
    /// INT and BYTES.
    Int(Value),
    /// REAL, DURATION and TIME.
    Real(Value),
    /// STRING and ENUM: pointer and length.
    Str(Value, Value),
    /// Pointer to strings and their count.
    Strands(Value, Value),
    /// A pointer to an address, or null.
    Ip(Value),
    /// A pointer to a [`Blob`], or null.
    Blob(Value),
    /// BACKEND, PROBE, ACL, SUB, STEVEDORE, REGEX: an I32 index, 0 for none.
    Number(Value),
    /// HEADER: message and name, known at compile time.
    Header(u32, u32),
    /// HEADER: in the form of [`RawKind::Header`](lacquer_vcl_runtime::RawKind::Header), known at run time.
    Named(Value, Value),
    /// HTTP.
    Http(u32),
}

/// The state that the emitters of a share of the subs have in common.
pub struct Shared<'p> {
    pub instance: &'p Instance,
    /// Whether each sub can be called dynamically. Calls by name are checked for such subs too.
    pub dynamic: &'p [bool],
    pub constants: Constants,
}

pub struct SubEmitter<'f, 'p, 's> {
    pub b: FunctionBuilder<'f>,
    pub shared: &'s mut Shared<'p>,
    convention: CallConv,
    pub ctx: Value,
    /// Block that returns `Ctx::handling`.
    pub exit: Block,
    /// All such blocks, and the number of branches to the last one. The register allocator is slow for
    /// blocks with thousands of predecessors.
    exits: Vec<Block>,
    ways: usize,
    scratch: StackSlot,
    /// Bytes of the scratch area in use, and the maximum so far.
    used: u32,
    most: u32,
    signatures: Vec<(Vec<Type>, &'static [Type], SigRef)>,
    subs: Vec<(u32, FuncRef)>,
}

impl<'p> SubEmitter<'_, 'p, '_> {
    pub fn emit(
        function: &mut Function,
        builder_context: &mut FunctionBuilderContext,
        shared: &mut Shared<'p>,
        isa: &dyn TargetIsa,
        sub: &'p Sub,
    ) -> Result<(), String> {
        let mut b = FunctionBuilder::new(function, builder_context);
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let ctx = b.block_params(entry)[0];
        let exit = b.create_block();
        let scratch = b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 0, 3));
        let mut emitter = SubEmitter {
            b,
            shared,
            convention: isa.default_call_conv(),
            ctx,
            exit,
            exits: vec![exit],
            ways: 0,
            scratch,
            used: 0,
            most: 0,
            signatures: Vec::new(),
            subs: Vec::new(),
        };
        if !emitter.stmts(&sub.body)? {
            let none = emitter.b.ins().iconst(types::I32, 0);
            emitter.b.ins().return_(&[none]);
        }
        for exit in std::mem::take(&mut emitter.exits) {
            emitter.b.set_cold_block(exit);
            emitter.b.switch_to_block(exit);
            let handling = emitter.handling();
            emitter.b.ins().return_(&[handling]);
        }
        emitter.b.func.sized_stack_slots[scratch].size = emitter.most;
        emitter.b.seal_all_blocks();
        emitter.b.finalize(isa.frontend_config());
        Ok(())
    }

    // Calls.

    fn call_rt(
        &mut self,
        function: *const (),
        params: &[&'static [Type]],
        returns: &'static [Type],
        args: &[Value],
    ) -> Inst {
        let params: Vec<Type> = params.concat();
        let known = self.signatures.iter().find(|s| s.0 == params && s.1 == returns).map(|s| s.2);
        let signature = known.unwrap_or_else(|| {
            let mut signature = Signature::new(self.convention);
            signature.params.push(AbiParam::new(types::I64));
            signature.params.extend(params.iter().map(|t| AbiParam::new(*t)));
            signature.returns.extend(returns.iter().map(|t| AbiParam::new(*t)));
            let made = self.b.import_signature(signature);
            self.signatures.push((params, returns, made));
            made
        });
        let callee = self.b.ins().iconst(types::I64, function as i64);
        let mut all = Vec::with_capacity(args.len() + 1);
        all.push(self.ctx);
        all.extend_from_slice(args);
        self.b.ins().call_indirect(signature, callee, &all)
    }

    pub fn rt0<R: Passed>(&mut self, f: for<'x, 'y> unsafe extern "C" fn(&'x mut Ctx<'y>) -> R) -> Inst {
        self.call_rt(f as *const (), &[], R::AS, &[])
    }

    pub fn rt1<A: Passed, R: Passed>(
        &mut self,
        f: for<'x, 'y> unsafe extern "C" fn(&'x mut Ctx<'y>, A) -> R,
        args: &[Value],
    ) -> Inst {
        self.call_rt(f as *const (), &[A::AS], R::AS, args)
    }

    pub fn rt2<A: Passed, B: Passed, R: Passed>(
        &mut self,
        f: for<'x, 'y> unsafe extern "C" fn(&'x mut Ctx<'y>, A, B) -> R,
        args: &[Value],
    ) -> Inst {
        self.call_rt(f as *const (), &[A::AS, B::AS], R::AS, args)
    }

    pub fn rt3<A: Passed, B: Passed, C: Passed, R: Passed>(
        &mut self,
        f: for<'x, 'y> unsafe extern "C" fn(&'x mut Ctx<'y>, A, B, C) -> R,
        args: &[Value],
    ) -> Inst {
        self.call_rt(f as *const (), &[A::AS, B::AS, C::AS], R::AS, args)
    }

    pub fn rt4<A: Passed, B: Passed, C: Passed, D: Passed, R: Passed>(
        &mut self,
        f: for<'x, 'y> unsafe extern "C" fn(&'x mut Ctx<'y>, A, B, C, D) -> R,
        args: &[Value],
    ) -> Inst {
        self.call_rt(f as *const (), &[A::AS, B::AS, C::AS, D::AS], R::AS, args)
    }

    /// Calls a module function. The last parameter of the runtime function is the cell for the result.
    pub fn rt_module_call(&mut self, args: &[Value]) {
        let f: unsafe extern "C" fn(&mut Ctx<'_>, u32, u32, *const Raw, u64, &mut Raw) = rt::flow::call;
        let params = [types::I32, types::I32, types::I64, types::I64, types::I64];
        let params: Vec<&'static [Type]> = params
            .iter()
            .map(|t| if *t == types::I32 { <u32 as Passed>::AS } else { <u64 as Passed>::AS })
            .collect();
        self.call_rt(f as *const (), &params, &[], args);
        self.check();
    }

    /// Returns the single result of a call.
    pub fn one(&self, call: Inst) -> Value {
        self.b.inst_results(call)[0]
    }

    /// Returns the result of a call that returns a string.
    pub fn string(&self, call: Inst) -> Val {
        let results = self.b.inst_results(call);
        Val::Str(results[0], results[1])
    }

    /// Converts a result that is 0 or not to a BOOL.
    pub fn truth(&mut self, call: Inst) -> Value {
        let result = self.one(call);
        self.b.ins().icmp_imm_s(IntCC::NotEqual, result, 0)
    }

    fn handling(&mut self) -> Value {
        self.b.ins().load(
            types::I32,
            MemFlagsData::trusted(),
            self.ctx,
            std::mem::offset_of!(Ctx<'_>, handling) as i32,
        )
    }

    /// Starts a new exit block between statements if the current one has many predecessors.
    pub fn spread_exits(&mut self) {
        if self.ways >= MAX_PREDECESSORS {
            self.exit = self.b.create_block();
            self.exits.push(self.exit);
            self.ways = 0;
        }
    }

    /// Exits the sub if the run has to end.
    pub fn check(&mut self) {
        self.ways += 1;
        let handling = self.handling();
        let go_on = self.b.create_block();
        self.b.ins().brif(handling, self.exit, &[], go_on, &[]);
        self.b.switch_to_block(go_on);
    }

    pub fn leave(&mut self) {
        self.b.ins().jump(self.exit, &[]);
    }

    /// Calls a sub by name. An action that it returns is also the caller's.
    pub fn call_sub(&mut self, sub: u32) {
        if self.shared.dynamic.get(sub as usize).copied().unwrap_or(false) {
            let number = self.number(sub + 1);
            self.rt1(rt::flow::call_sub, &[number]);
            return self.check();
        }
        let known = self.subs.iter().find(|s| s.0 == sub).map(|s| s.1);
        let callee = known.unwrap_or_else(|| {
            let signature = self.b.import_signature(signature(self.convention));
            let name =
                self.b.func.declare_imported_user_function(UserExternalName { namespace: 0, index: sub });
            let data =
                ExtFuncData { name: ExternalName::user(name), signature, colocated: true, patchable: false };
            let made = self.b.import_function(data);
            self.subs.push((sub, made));
            made
        });
        let call = self.b.ins().call(callee, &[self.ctx]);
        let action = self.one(call);
        let (left, go_on) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(action, left, &[], go_on, &[]);
        self.b.switch_to_block(left);
        self.b.ins().return_(&[action]);
        self.b.switch_to_block(go_on);
    }

    /// Emits a trace point for `VCL_trace`. It costs a load and a branch while tracing is off.
    pub fn trace(&mut self, number: u32, at: At) {
        let offset = std::mem::offset_of!(Ctx<'_>, trace) as i32;
        let wanted = self.b.ins().load(types::I32, MemFlagsData::trusted(), self.ctx, offset);
        let (traced, go_on) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(traced);
        self.b.ins().brif(wanted, traced, &[], go_on, &[]);
        self.b.switch_to_block(traced);
        let place = self.word(rt::flow::Place { number, at }.pack() as i64);
        self.rt1(rt::flow::trace, &[place]);
        self.b.ins().jump(go_on, &[]);
        self.b.switch_to_block(go_on);
    }

    // Constants.

    /// Emits an I32 constant.
    pub fn number(&mut self, n: u32) -> Value {
        self.b.ins().iconst(types::I32, i64::from(n))
    }

    /// Emits an I64 constant.
    pub fn word(&mut self, n: i64) -> Value {
        self.b.ins().iconst(types::I64, n)
    }

    pub fn text(&mut self, text: &[u8]) -> (Value, Value) {
        let at = self.shared.constants.text(text);
        (self.word(at as i64), self.word(text.len() as i64))
    }

    // The scratch area: a stack within the frame.

    /// Reserves `bytes` until [`release`](Self::release). Returns the offset.
    pub fn reserve(&mut self, bytes: usize) -> i32 {
        let at = self.used;
        self.used += bytes as u32;
        self.most = self.most.max(self.used);
        at as i32
    }

    pub fn mark(&self) -> u32 {
        self.used
    }

    pub fn release(&mut self, mark: u32) {
        self.used = mark;
    }

    pub fn scratch_store(&mut self, value: Value, at: i32) {
        self.b.ins().stack_store(types::I64, value, self.scratch, at);
    }

    pub fn scratch_load(&mut self, ty: Type, at: i32) -> Value {
        self.b.ins().stack_load(types::I64, ty, self.scratch, at)
    }

    pub fn scratch_address(&mut self, at: i32) -> Value {
        self.b.ins().stack_addr(types::I64, self.scratch, at)
    }
}

/// The signature of every sub.
pub fn signature(convention: CallConv) -> Signature {
    let mut signature = Signature::new(convention);
    signature.params.push(AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I32));
    signature
}
