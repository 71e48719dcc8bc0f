//! Strings: conversion to STRING, headers, and comparison with constants.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, MemFlagsData, Type as Machine, Value, types};
use lacquer_vcl::types::Type;
use lacquer_vcl_runtime::Str;

use super::sub::{SubEmitter, Val};
use crate::rt;

/// Maximum length of constants that are compared inline, with at most two loads.
const INLINE: usize = 16;

/// A string takes a cell of two words in a list: the pointer, then the length.
pub const CELL: usize = size_of::<Str<'_>>();
const WORD: usize = size_of::<u64>();
const _: () = assert!(CELL == 2 * WORD && size_of::<usize>() == WORD);

impl SubEmitter<'_, '_, '_> {
    /// Writes a string to its cell in a list.
    pub fn store_part(&mut self, p: Value, n: Value, cell: i32) {
        self.scratch_store(p, cell);
        self.scratch_store(n, cell + WORD as i32);
    }

    /// Converts any value to STRING.
    pub fn as_text(&mut self, value: Val, ty: Type) -> Result<Val, String> {
        let call = match value {
            Val::Str(..) => return Ok(value),
            Val::Bool(v) => return Ok(self.bool_text(v)),
            Val::Strands(list, count) => self.rt2(rt::text::join, &[list, count]),
            Val::Int(v) => self.rt1(rt::text::int_text, &[v]),
            Val::Real(v) if ty == Type::Time => self.rt1(rt::text::time_text, &[v]),
            Val::Real(v) => self.rt1(rt::text::real_text, &[v]),
            Val::Ip(v) => self.rt1(rt::text::ip_text, &[v]),
            Val::Blob(v) => self.rt1(rt::text::blob_text, &[v]),
            Val::Number(v) if ty == Type::Backend => self.rt1(rt::text::backend_text, &[v]),
            Val::Number(v) if ty == Type::Stevedore => self.rt1(rt::text::stevedore_text, &[v]),
            Val::Number(v) if ty == Type::Acl => self.rt1(rt::text::acl_text, &[v]),
            Val::Header(http, name) => return Ok(self.header(http, name)),
            Val::Named(http, name) => self.rt2(rt::vars::get_named, &[http, name]),
            Val::None | Val::Number(_) | Val::Http(_) => {
                return Err(format!("{ty:?} cannot be converted to STRING"));
            }
        };
        let text = self.string(call);
        self.check();
        Ok(text)
    }

    fn bool_text(&mut self, truth: Value) -> Val {
        let (yes, yes_len) = self.text(b"true");
        let (no, no_len) = self.text(b"false");
        Val::Str(self.b.ins().select(truth, yes, no), self.b.ins().select(truth, yes_len, no_len))
    }

    pub fn header(&mut self, http: u32, name: u32) -> Val {
        let (http, name) = (self.number(http), self.number(name));
        let call = self.rt2(rt::vars::get_header, &[http, name]);
        self.string(call)
    }

    /// Emits a jump to `same` or `differs`: compares the length of a string with that of `text` first, then the bytes if they
    /// are equal.
    pub fn branch_on_constant(&mut self, p: Value, n: Value, text: &[u8], same: Block, differs: Block) {
        if text.is_empty() {
            let empty = self.b.ins().icmp_imm_s(IntCC::Equal, n, 0);
            let defined = self.b.ins().icmp_imm_s(IntCC::NotEqual, p, 0);
            let is_same = self.b.ins().band(empty, defined);
            self.b.ins().brif(is_same, same, &[], differs, &[]);
            return;
        }
        let long = self.b.ins().icmp_imm_s(IntCC::Equal, n, text.len() as i64);
        let look = self.b.create_block();
        self.b.ins().brif(long, look, &[], differs, &[]);
        self.b.switch_to_block(look);
        let is_same = if text.len() <= INLINE {
            self.same_bytes(p, text)
        } else {
            let (constant, length) = self.text(text);
            let call = self.rt3(rt::text::same_bytes, &[p, constant, length]);
            self.truth(call)
        };
        self.b.ins().brif(is_same, same, &[], differs, &[]);
    }

    /// Compares with loads of the largest fitting size. The last load overlaps the previous one if the length is odd.
    fn same_bytes(&mut self, p: Value, text: &[u8]) -> Value {
        let (machine, size): (Machine, usize) = match text.len() {
            8.. => (types::I64, 8),
            4..8 => (types::I32, 4),
            2..4 => (types::I16, 2),
            _ => (types::I8, 1),
        };
        let first = self.same_piece(p, text, 0, machine, size);
        if text.len() == size {
            return first;
        }
        let last = self.same_piece(p, text, text.len() - size, machine, size);
        self.b.ins().band(first, last)
    }

    fn same_piece(&mut self, p: Value, text: &[u8], at: usize, machine: Machine, size: usize) -> Value {
        let loaded = self.b.ins().load(machine, MemFlagsData::new().with_notrap(), p, at as i32);
        let mut bytes = [0u8; 8];
        bytes[..size].copy_from_slice(&text[at..at + size]);
        let wanted = self.b.ins().iconst(machine, i64::from_ne_bytes(bytes));
        self.b.ins().icmp(IntCC::Equal, loaded, wanted)
    }
}
