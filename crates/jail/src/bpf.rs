//! Builds seccomp programs from rules. Pure: the kernel gets the result through `lacquer_system::confine`.
//!
//! Layout: check of the architecture, tests of the frequent calls, then a binary search over the other calls. Kernels
//! since 5.11 evaluate the program once per call number when it is installed, and skip it for calls that it allows
//! with any arguments. Older kernels run it each time, which the order makes cheap.

use lacquer_system::confine::Instruction;

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// Offsets into `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// The ABI of this program; calls through another one (32 bit) could bypass the rules.
#[cfg(target_arch = "x86_64")]
pub const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub const NATIVE: u32 = 0xc000_00b7;
/// Call numbers from here on belong to the x32 ABI.
const X32: u32 = 0x4000_0000;
/// Maximum number of rules in a leaf of the search, which are tested one after the other.
const LEAF: usize = 3;

/// The decision about a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// The call fails with this error number.
    Refuse(u16),
    /// The thread gets SIGSYS.
    Trap,
    /// The process ends without a handler.
    Kill,
}

impl Verdict {
    const fn encode(self) -> u32 {
        match self {
            Verdict::Allow => 0x7fff_0000,
            Verdict::Refuse(errno) => 0x0005_0000 | errno as u32,
            Verdict::Trap => 0x0003_0000,
            Verdict::Kill => 0x8000_0000,
        }
    }
}

/// A test of the low 32 bits of an argument: `argument & mask == equals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    pub argument: u8,
    pub mask: u32,
    pub equals: u32,
}

/// The conditions under which a call is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Number of the call.
    pub call: u32,
    /// The call is allowed if all checks of one of these sets hold.
    pub allowed: Vec<Vec<Check>>,
    /// The verdict if no set holds.
    pub otherwise: Verdict,
}

impl Rule {
    /// Returns a rule with the same verdict for all arguments.
    pub fn always(call: u32, verdict: Verdict) -> Rule {
        Rule { call, allowed: Vec::new(), otherwise: verdict }
    }

    /// Returns a rule that allows the call if all checks of one set in `allowed` hold.
    pub fn when(call: u32, allowed: Vec<Vec<Check>>, otherwise: Verdict) -> Rule {
        Rule { call, allowed, otherwise }
    }
}

const fn step(code: u16, operand: u32) -> Instruction {
    Instruction { code, jump_if: 0, jump_unless: 0, operand }
}

const fn branch(code: u16, operand: u32, jump_if: u8, jump_unless: u8) -> Instruction {
    Instruction { code, jump_if, jump_unless, operand }
}

const fn end(verdict: Verdict) -> Instruction {
    step(RETURN, verdict.encode())
}

/// Returns the program for these rules. `hot` lists calls to be tested first; their rules must have no checks. Calls
/// without a rule trap. Numbers from `unknown` on fail with `ENOSYS` instead, because a newer C library tries new calls
/// and falls back to older ones.
pub fn assemble(rules: &[Rule], hot: &[u32], unknown: u32) -> Vec<Instruction> {
    let mut rules: Vec<&Rule> = rules.iter().collect();
    rules.sort_by_key(|rule| rule.call);
    let mut out = vec![
        step(LOAD, ARCHITECTURE),
        branch(JUMP_EQUAL, NATIVE, 1, 0),
        end(Verdict::Kill),
        step(LOAD, NUMBER),
    ];
    for call in hot {
        let Ok(at) = rules.binary_search_by_key(call, |rule| rule.call) else { continue };
        let rule = rules.remove(at);
        out.push(branch(JUMP_EQUAL, rule.call, 0, 1));
        out.push(end(rule.otherwise));
    }
    out.push(branch(JUMP_AT_LEAST, X32, 0, 1));
    out.push(end(Verdict::Trap));
    out.push(branch(JUMP_AT_LEAST, unknown, 0, 1));
    out.push(end(Verdict::Refuse(libc::ENOSYS as u16)));
    search(&rules, &mut out);
    out
}

/// Appends the search for a call among sorted rules. Every path through it ends with a verdict.
fn search(rules: &[&Rule], out: &mut Vec<Instruction>) {
    if rules.len() <= LEAF {
        for rule in rules {
            let body = body(rule);
            out.push(branch(JUMP_EQUAL, rule.call, 1, 0));
            out.push(step(JUMP, body.len() as u32));
            out.extend(body);
        }
        out.push(end(Verdict::Trap));
        return;
    }
    let (lower, upper) = rules.split_at(rules.len() / 2);
    out.push(branch(JUMP_AT_LEAST, upper[0].call, 0, 1));
    let jump = out.len();
    out.push(step(JUMP, 0));
    search(lower, out);
    out[jump].operand = (out.len() - jump - 1) as u32;
    search(upper, out);
}

/// Returns the instructions that decide about a call after its number was found.
fn body(rule: &Rule) -> Vec<Instruction> {
    let mut out = Vec::new();
    for checks in &rule.allowed {
        for (at, check) in checks.iter().enumerate() {
            // Skips this test, the three instructions of each later one, and the verdict.
            let past = 3 * (checks.len() - at - 1) + 1;
            // The low half: both architectures are little-endian.
            out.push(step(LOAD, ARGUMENTS + 8 * u32::from(check.argument)));
            out.push(step(AND, check.mask));
            out.push(branch(JUMP_EQUAL, check.equals, 0, past as u8));
        }
        out.push(end(Verdict::Allow));
    }
    out.push(end(rule.otherwise));
    out
}

#[cfg(test)]
pub mod interpreter {
    //! Runs a program like the kernel.

    use super::*;

    /// A system call as input of a program.
    #[derive(Clone, Copy, Debug)]
    pub struct Call {
        pub architecture: u32,
        pub number: u32,
        pub arguments: [u64; 6],
    }

    pub fn call(number: u32, arguments: &[u64]) -> Call {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        Call { architecture: NATIVE, number, arguments: all }
    }

    fn word(call: &Call, offset: u32) -> u32 {
        match offset {
            NUMBER => call.number,
            ARCHITECTURE => call.architecture,
            _ => call.arguments[((offset - ARGUMENTS) / 8) as usize] as u32,
        }
    }

    /// Returns the verdict and the number of executed instructions.
    pub fn run(program: &[Instruction], call: Call) -> (u32, usize) {
        let (mut at, mut accumulator, mut steps) = (0, 0, 0);
        loop {
            let Instruction { code, jump_if, jump_unless, operand } = program[at];
            let jump = |condition| 1 + usize::from(if condition { jump_if } else { jump_unless });
            steps += 1;
            at += match code {
                LOAD => {
                    accumulator = word(&call, operand);
                    1
                }
                AND => {
                    accumulator &= operand;
                    1
                }
                JUMP => 1 + operand as usize,
                JUMP_EQUAL => jump(accumulator == operand),
                JUMP_AT_LEAST => jump(accumulator >= operand),
                RETURN => return (operand, steps),
                other => panic!("instruction {other:#x}"),
            };
        }
    }

    pub fn verdict(program: &[Instruction], call: Call) -> u32 {
        run(program, call).0
    }
}

#[cfg(test)]
mod tests {
    use super::interpreter::{Call, call, run, verdict};
    use super::*;

    const ALLOW: u32 = Verdict::Allow.encode();
    const TRAP: u32 = Verdict::Trap.encode();

    fn even_calls() -> Vec<Rule> {
        (0..200).map(|n| Rule::always(2 * n, Verdict::Allow)).collect()
    }

    #[test]
    fn each_call_gets_its_own_rule() {
        let program = assemble(&even_calls(), &[44, 0], 400);
        for number in 0..400 {
            let wanted = if number % 2 == 0 { ALLOW } else { TRAP };
            assert_eq!(verdict(&program, call(number, &[])), wanted, "call {number}");
        }
        assert_eq!(verdict(&program, call(400, &[])), Verdict::Refuse(libc::ENOSYS as u16).encode());
        assert_eq!(verdict(&program, call(X32, &[])), TRAP);
        assert_eq!(verdict(&program, call(X32 + 1, &[])), TRAP);
    }

    #[test]
    fn another_architecture_is_killed() {
        let program = assemble(&even_calls(), &[], 400);
        let call = Call { architecture: 0x4000_0003, number: 0, arguments: [0; 6] };
        assert_eq!(verdict(&program, call), Verdict::Kill.encode());
    }

    #[test]
    fn frequent_calls_are_tested_first_and_all_calls_are_fast() {
        let program = assemble(&even_calls(), &[200, 202], 400);
        assert_eq!(run(&program, call(200, &[])), (ALLOW, 5));
        assert_eq!(run(&program, call(202, &[])), (ALLOW, 6));
        let longest = (0..400).map(|number| run(&program, call(number, &[])).1).max();
        assert!(longest < Some(32), "{longest:?}");
    }

    #[test]
    fn checks_of_one_set_must_all_hold() {
        let refused = Verdict::Refuse(13);
        let checks = vec![
            vec![Check { argument: 0, mask: 0xff, equals: 1 }, Check { argument: 2, mask: 4, equals: 0 }],
            vec![Check { argument: 0, mask: u32::MAX, equals: 16 }],
        ];
        let mut rules = even_calls();
        rules[5] = Rule::when(10, checks, refused);
        let program = assemble(&rules, &[], 400);
        let cases: [(&[u64], Verdict); 6] = [
            (&[1, 9, 0], Verdict::Allow),
            (&[0x101, 9, 3], Verdict::Allow),
            (&[1, 9, 4], refused),
            (&[2, 9, 0], refused),
            (&[16, 9, 4], Verdict::Allow),
            (&[17, 0, 0], refused),
        ];
        for (arguments, wanted) in cases {
            assert_eq!(verdict(&program, call(10, arguments)), wanted.encode(), "{arguments:?}");
        }
    }
}
