//! Calls of module functions, with evaluated arguments. Each argument is a cell in the scratch area, and so is the
//! result.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use lacquer_vcl::types::Type;
use lacquer_vcl_runtime::{Raw, RawKind};

use super::sub::{SubEmitter, Val};
use crate::rt::flow::CallShape;

/// The size of an argument or a result in the scratch area.
pub const CELL: usize = size_of::<Raw>();
const A: i32 = std::mem::offset_of!(Raw, a) as i32;
const B: i32 = std::mem::offset_of!(Raw, b) as i32;

fn kind(ty: Type) -> Result<RawKind, String> {
    Ok(match ty {
        Type::Void => RawKind::Absent,
        Type::Bool => RawKind::Bool,
        Type::Int => RawKind::Int,
        Type::Bytes => RawKind::Bytes,
        Type::Real => RawKind::Real,
        Type::Duration => RawKind::Duration,
        Type::Time => RawKind::Time,
        Type::String | Type::Enum => RawKind::Str,
        Type::Strands => RawKind::Strands,
        Type::Ip => RawKind::Ip,
        Type::Blob => RawKind::Blob,
        Type::Backend => RawKind::Backend,
        Type::Probe => RawKind::Probe,
        Type::Acl => RawKind::Acl,
        Type::Sub => RawKind::Sub,
        Type::Stevedore => RawKind::Stevedore,
        Type::Header => RawKind::Header,
        Type::Http => RawKind::Http,
        Type::Regex => RawKind::Regex,
        Type::Body | Type::Instance => return Err(format!("A {ty:?} cannot be an argument")),
    })
}

/// Returns whether a value has the machine form that readers of a cell of this kind expect.
fn matches(kind: RawKind, value: Val) -> bool {
    match value {
        Val::None => kind == RawKind::Absent,
        Val::Bool(_) => kind == RawKind::Bool,
        Val::Int(_) => matches!(kind, RawKind::Int | RawKind::Bytes),
        Val::Real(_) => matches!(kind, RawKind::Real | RawKind::Duration | RawKind::Time),
        Val::Str(..) => kind == RawKind::Str,
        Val::Strands(..) => kind == RawKind::Strands,
        Val::Ip(_) => kind == RawKind::Ip,
        Val::Blob(_) => kind == RawKind::Blob,
        Val::Number(_) => matches!(
            kind,
            RawKind::Backend
                | RawKind::Probe
                | RawKind::Acl
                | RawKind::Sub
                | RawKind::Stevedore
                | RawKind::Regex
        ),
        Val::Header(..) | Val::Named(..) => kind == RawKind::Header,
        Val::Http(_) => kind == RawKind::Http,
    }
}

/// A call of a module function.
pub struct Call {
    pub function: u32,
    pub object: Option<u32>,
    /// The number of arguments.
    pub args: usize,
    pub returns: Type,
    /// The number of the call in the program, if the function keeps state for it.
    pub site: Option<u32>,
}

impl SubEmitter<'_, '_, '_> {
    /// Writes an argument to its cell. A list of strings must remain in the scratch area until the call returns.
    pub fn store_arg(&mut self, value: Val, ty: Type, cell: i32) -> Result<(), String> {
        let kind = kind(ty)?;
        if !matches(kind, value) {
            return Err(format!("{value:?} is not of type {ty:?}"));
        }
        let kind = self.word(kind as i64);
        self.scratch_store(kind, cell);
        let (a, b) = match value {
            Val::None => return Err("An argument without a value".to_owned()),
            Val::Bool(v) | Val::Number(v) => (self.b.ins().uextend(types::I64, v), None),
            Val::Int(v) | Val::Real(v) | Val::Ip(v) | Val::Blob(v) => (v, None),
            Val::Str(p, n) | Val::Strands(p, n) | Val::Named(p, n) => (p, Some(n)),
            Val::Header(http, name) => (self.word(i64::from(http)), Some(self.word(i64::from(name)))),
            Val::Http(http) => (self.word(i64::from(http)), None),
        };
        self.scratch_store(a, cell + A);
        if let Some(b) = b {
            self.scratch_store(b, cell + B);
        }
        Ok(())
    }

    /// Marks an argument that is not given.
    pub fn store_absent_arg(&mut self, cell: i32) {
        let absent = self.word(RawKind::Absent as i64);
        self.scratch_store(absent, cell);
    }

    /// Emits the call of a module function. `cells` is the address of its arguments, and `result` the cell of its
    /// result.
    pub fn call_function(&mut self, call: &Call, cells: Value, result: i32) -> Result<Val, String> {
        let count = u16::try_from(call.args).map_err(|_| "Too many arguments")?;
        let shape = CallShape { args: count, returns: kind(call.returns)?, call_site: call.site }.pack();
        let words = [
            self.number(call.function),
            self.number(call.object.map_or(0, |o| o + 1)),
            cells,
            self.word(shape as i64),
            self.scratch_address(result),
        ];
        self.rt_module_call(&words);
        self.result(call.returns, result)
    }

    fn result(&mut self, ty: Type, cell: i32) -> Result<Val, String> {
        Ok(match kind(ty)? {
            RawKind::Absent => Val::None,
            RawKind::Bool => {
                let v = self.scratch_load(types::I64, cell + A);
                Val::Bool(self.b.ins().icmp_imm_s(IntCC::NotEqual, v, 0))
            }
            RawKind::Int | RawKind::Bytes => Val::Int(self.scratch_load(types::I64, cell + A)),
            RawKind::Real | RawKind::Duration | RawKind::Time => {
                Val::Real(self.scratch_load(types::F64, cell + A))
            }
            RawKind::Str => {
                let p = self.scratch_load(types::I64, cell + A);
                Val::Str(p, self.scratch_load(types::I64, cell + B))
            }
            RawKind::Ip => Val::Ip(self.scratch_load(types::I64, cell + A)),
            RawKind::Blob => Val::Blob(self.scratch_load(types::I64, cell + A)),
            RawKind::Backend
            | RawKind::Probe
            | RawKind::Acl
            | RawKind::Sub
            | RawKind::Stevedore
            | RawKind::Regex => Val::Number(self.scratch_load(types::I32, cell + A)),
            RawKind::Header => {
                let http = self.scratch_load(types::I64, cell + A);
                Val::Named(http, self.scratch_load(types::I64, cell + B))
            }
            // The list of an argument does not outlive the call.
            RawKind::Http | RawKind::Strands => {
                return Err(format!("A function cannot return {ty:?}"));
            }
        })
    }
}
