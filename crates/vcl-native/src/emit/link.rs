//! Concatenates the code of the subs and resolves calls between them.

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::ExternalName;
use cranelift_codegen::ir::function::FunctionParameters;
use cranelift_codegen::{FinalizedMachReloc, FinalizedRelocTarget};
use lacquer_vcl_runtime::instance::SubFn;

use crate::memory::Code;

/// Alignment of functions in bytes.
const ALIGNMENT: usize = 16;

/// The code of one sub.
pub struct Emitted {
    bytes: Vec<u8>,
    /// The calls to resolve. Their positions are relative to the start of the code.
    calls: Vec<Call>,
    frame: usize,
}

impl Emitted {
    /// `frame` is the number of bytes of stack that a call of the code takes.
    pub fn new(
        code: &[u8],
        relocations: &[FinalizedMachReloc],
        names: &FunctionParameters,
        frame: usize,
    ) -> Result<Emitted, String> {
        let mut calls = Vec::with_capacity(relocations.len());
        for relocation in relocations {
            let FinalizedRelocTarget::ExternalName(ExternalName::User(name)) = &relocation.target else {
                return Err(format!("unexpected reference {:?}", relocation.target));
            };
            if !matches!(relocation.kind, Reloc::X86CallPCRel4 | Reloc::Arm64Call) {
                return Err(format!("unexpected reference of kind {:?}", relocation.kind));
            }
            let sub = names.user_named_funcs()[*name].index as usize;
            let at = relocation.offset as usize;
            calls.push(Call { at, kind: relocation.kind, addend: relocation.addend, sub });
        }
        Ok(Emitted { bytes: code.to_vec(), calls, frame })
    }
}

#[derive(Default)]
pub struct Linker {
    bytes: Vec<u8>,
    starts: Vec<usize>,
    calls: Vec<Call>,
    frames: Vec<usize>,
}

/// The code of all subs.
pub struct Linked {
    pub code: Code,
    /// The entry of each sub.
    pub subs: Vec<SubFn>,
    /// The number of bytes of stack that a call of each sub takes, without the subs that it calls.
    pub frames: Vec<usize>,
}

/// A call from one sub to another, whose address is filled in later.
#[derive(Clone, Copy)]
struct Call {
    at: usize,
    kind: Reloc,
    addend: i64,
    sub: usize,
}

impl Linker {
    /// Appends the code of the next sub.
    pub fn add(&mut self, function: &Emitted) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let start = self.bytes.len();
        self.starts.push(start);
        self.frames.push(function.frame);
        self.bytes.extend_from_slice(&function.bytes);
        self.calls.extend(function.calls.iter().map(|call| Call { at: start + call.at, ..*call }));
    }

    /// Maps the code. The returned entries are in the order of the subs.
    pub fn finish(mut self) -> Result<Linked, String> {
        for call in &self.calls {
            let target = *self.starts.get(call.sub).ok_or("Call of a missing sub")?;
            let distance = target as i64 + call.addend - call.at as i64;
            let field = &mut self.bytes[call.at..call.at + 4];
            let old = u32::from_le_bytes([field[0], field[1], field[2], field[3]]);
            let new = with_distance(call.kind, old, distance).ok_or("The program's code is too long")?;
            field.copy_from_slice(&new.to_le_bytes());
        }
        let code = Code::new(&self.bytes)?;
        // SAFETY: at each start is the code of a function with the signature that `emit` gave it.
        let entry = |start: &usize| unsafe {
            std::mem::transmute::<*const u8, SubFn>((code.address() + start) as *const u8)
        };
        let subs = self.starts.iter().map(entry).collect();
        Ok(Linked { code, subs, frames: self.frames })
    }
}

/// Returns a call's field with the distance to its target in bytes. `None`: it does not fit.
fn with_distance(kind: Reloc, field: u32, distance: i64) -> Option<u32> {
    /// The number of bits of a distance on ARM, which counts instructions of four bytes.
    const BITS: u32 = 26;
    if kind != Reloc::Arm64Call {
        return i32::try_from(distance).ok().map(i32::cast_unsigned);
    }
    let most = 1 << (BITS - 1);
    let fits = distance % 4 == 0 && (-most..most).contains(&(distance / 4));
    let mask = (1 << BITS) - 1;
    fits.then_some(field & !mask | (distance >> 2) as u32 & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_that_do_not_fit_are_refused() {
        let near = |distance| with_distance(Reloc::X86CallPCRel4, 0, distance);
        assert_eq!(near(-4), Some(0xffff_fffc));
        assert_eq!(near(i64::from(i32::MAX)), Some(0x7fff_ffff));
        assert_eq!(near(i64::from(i32::MAX) + 1), None);
        assert_eq!(near(i64::from(i32::MIN) - 1), None);
        let branch = |distance| with_distance(Reloc::Arm64Call, 0x9400_0000, distance);
        assert_eq!(branch(-4), Some(0x97ff_ffff));
        assert_eq!(branch((1 << 27) - 4), Some(0x95ff_ffff));
        assert_eq!(branch(1 << 27), None);
        assert_eq!(branch(-(1 << 27)), Some(0x9600_0000));
        assert_eq!(branch(2), None);
    }
}
