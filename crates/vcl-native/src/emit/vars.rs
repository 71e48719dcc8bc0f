//! Reads of VCL variables and of storages' fields.

use cranelift_codegen::ir::Inst;
use lacquer_vcl::types::Type;
use lacquer_vcl::variables_table::Var;

use super::sub::{SubEmitter, Val};
use crate::rt;

impl SubEmitter<'_, '_, '_> {
    pub fn var(&mut self, var: Var, ty: Type) -> Result<Val, String> {
        let code = self.number(var as u32);
        Ok(match ty {
            Type::Bool => {
                let call = self.rt1(rt::vars::get_bool, &[code]);
                Val::Bool(self.truth(call))
            }
            Type::Int | Type::Bytes => {
                let call = self.rt1(rt::vars::get_int, &[code]);
                Val::Int(self.one(call))
            }
            Type::Real | Type::Duration | Type::Time => {
                let call = self.rt1(rt::vars::get_real, &[code]);
                Val::Real(self.one(call))
            }
            Type::String | Type::Enum => {
                let call = self.rt1(rt::vars::get_str, &[code]);
                self.string(call)
            }
            Type::Ip => {
                let call = self.rt1(rt::vars::get_ip, &[code]);
                let value = Val::Ip(self.one(call));
                self.check();
                value
            }
            Type::Blob => {
                let call = self.rt1(rt::vars::get_blob, &[code]);
                let value = Val::Blob(self.one(call));
                self.check();
                value
            }
            Type::Backend => {
                let call = self.rt1(rt::vars::get_backend, &[code]);
                Val::Number(self.one(call))
            }
            Type::Stevedore => {
                let call = self.rt1(rt::vars::get_stevedore, &[code]);
                Val::Number(self.one(call))
            }
            _ => return Err(format!("{} of type {ty:?} has no value", var.name())),
        })
    }

    pub fn storage_var(&mut self, storage: &str, var: Var, ty: Type) -> Val {
        let (p, n) = self.text(storage.as_bytes());
        let code = self.number(var as u32);
        let call = self.rt2(rt::vars::storage_var, &[p, n, code]);
        self.field(call, ty)
    }

    /// Converts a storage's field, which the runtime returns as an integer, to its type.
    pub fn field(&mut self, call: Inst, ty: Type) -> Val {
        if ty == Type::Bool { Val::Bool(self.truth(call)) } else { Val::Int(self.one(call)) }
    }
}
