//! The options of a pattern, in the order of RE2's module.

use lacquer_vcl_runtime::Args;

/// An option that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Flag {
    Utf8,
    PosixSyntax,
    LongestMatch,
    Literal,
    NeverNl,
    DotNl,
    NeverCapture,
    CaseSensitive,
    PerlClasses,
    WordBoundary,
    OneLine,
}

/// The options that patterns have in VCL: flags, and a number after the third.
const ORDER: [Flag; 11] = [
    Flag::Utf8,
    Flag::PosixSyntax,
    Flag::LongestMatch,
    Flag::Literal,
    Flag::NeverNl,
    Flag::DotNl,
    Flag::NeverCapture,
    Flag::CaseSensitive,
    Flag::PerlClasses,
    Flag::WordBoundary,
    Flag::OneLine,
];
const MAX_MEM_AT: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Options {
    flags: u16,
    /// Limit on the size of a compiled pattern, in bytes.
    pub max_mem: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { flags: 0, max_mem: 8 << 20 }.with(Flag::CaseSensitive, true)
    }
}

impl Options {
    /// Returns options from the bits of all flags.
    #[cfg(feature = "fuzzing")]
    pub fn of_flags(flags: u16, max_mem: usize) -> Options {
        Options { flags, max_mem }
    }

    pub fn is(self, flag: Flag) -> bool {
        self.flags & 1 << flag as u16 != 0
    }

    pub fn with(self, flag: Flag, on: bool) -> Options {
        let bit = 1 << flag as u16;
        Options { flags: if on { self.flags | bit } else { self.flags & !bit }, ..self }
    }

    /// Reads the options of a function or `regex`, which begin at argument `at`.
    pub fn of_pattern(args: &Args<'_>, at: usize) -> Options {
        Options::read(args, at, &ORDER)
    }

    /// Reads the options of a set, whose patterns never capture.
    pub fn of_set(args: &Args<'_>, at: usize) -> Options {
        let order: Vec<Flag> = ORDER.into_iter().filter(|flag| *flag != Flag::NeverCapture).collect();
        Options::read(args, at, &order).with(Flag::NeverCapture, true)
    }

    fn read(args: &Args<'_>, at: usize, order: &[Flag]) -> Options {
        let mut options =
            Options { flags: 0, max_mem: usize::try_from(args.int(at + MAX_MEM_AT)).unwrap_or(0) };
        for (i, flag) in order.iter().enumerate() {
            let position = at + i + usize::from(i >= MAX_MEM_AT);
            options = options.with(*flag, args.bool(position));
        }
        options
    }
}
