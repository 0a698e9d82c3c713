//! Assembles seccomp filters from rules: one program, which allows calls without rules after a short search.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, sock_filter};
use std::collections::{BTreeMap, BTreeSet};

/// The architecture that this program was built for, if its system calls are known. Programs for another architecture
/// are killed.
pub(super) const ARCHITECTURE: Option<TargetArch> = if cfg!(target_arch = "x86_64") {
    Some(TargetArch::x86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(TargetArch::aarch64)
} else {
    None
};

/// The rules for calls that are refused, by the error that they return.
pub(super) type Refusals = Vec<(BTreeMap<i64, Vec<SeccompRule>>, libc::c_int)>;

/// Opcodes of filters: the first loads a field of the call, the others skip steps or end the filter.
const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_UNLESS_LESS: u16 = 0x35;
const RETURN: u16 = 0x06;

/// The fields of `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;

/// The bit in the numbers of the x32 calls of x86-64.
const X32_BIT: u32 = 0x4000_0000;

/// The filter that refuses these calls. The kernel evaluates a filter for each system call number when it is loaded, and
/// again when such a call is made. Most calls are allowed after a short search for their numbers; the steps after the search decide about
/// those with rules.
pub(super) fn build(refusals: Refusals) -> Option<BpfProgram> {
    let with_rules: Option<BTreeSet<u32>> = refusals
        .iter()
        .flat_map(|(rules, _)| rules.keys())
        .map(|call| u32::try_from(*call).ok())
        .collect();
    let mut program = allow_calls_without_rules(&with_rules?)?;
    program.extend(join(build_filters(refusals)?));
    Some(program)
}

/// The beginning of a program that allows the calls of this architecture whose numbers are not in `with_rules`.
fn allow_calls_without_rules(with_rules: &BTreeSet<u32>) -> Option<BpfProgram> {
    // The numbers at which a range with rules starts or ends.
    let mut bounds = Vec::new();
    for number in with_rules {
        if bounds.last() == Some(number) {
            bounds.pop();
        } else {
            bounds.push(*number);
        }
        bounds.push(number + 1);
    }
    bounds.push(X32_BIT);
    let mut program = vec![
        step(LOAD, 0, 0, ARCHITECTURE_OFFSET),
        step(JUMP_IF_EQUAL, 1, 0, audit_architecture()?),
        step(JUMP, 0, 0, 0),
        step(LOAD, 0, 0, NUMBER_OFFSET),
    ];
    program.extend(search(&bounds, 0)?);
    let length = program.len();
    for (at, step) in program.iter_mut().enumerate() {
        if step.code == JUMP {
            step.k = u32::try_from(length - at - 1).ok()?;
        }
    }
    Some(program)
}

/// Searches for the loaded number among `bounds`. A bound with an even index, counted from `first`, begins a range with rules. Allows a
/// number without rules; for other numbers there is a jump whose distance is not set yet.
fn search(bounds: &[u32], first: usize) -> Option<BpfProgram> {
    let middle = bounds.len() / 2;
    let Some(bound) = bounds.get(middle) else {
        return Some(vec![if first.is_multiple_of(2) {
            step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW)
        } else {
            step(JUMP, 0, 0, 0)
        }]);
    };
    let below = search(&bounds[..middle], first)?;
    let above = search(&bounds[middle + 1..], first + middle + 1)?;
    let distance = u8::try_from(below.len()).ok()?;
    let compare = step(JUMP_UNLESS_LESS, distance, 0, *bound);
    Some([vec![compare], below, above].concat())
}

/// This architecture as the kernel names it to filters, after `AUDIT_ARCH_*` in its `include/uapi/linux/audit.h`: 64 bits,
/// little-endian.
fn audit_architecture() -> Option<u32> {
    let machine = match ARCHITECTURE? {
        TargetArch::x86_64 => libc::EM_X86_64,
        TargetArch::aarch64 => libc::EM_AARCH64,
        TargetArch::riscv64 => libc::EM_RISCV,
    };
    Some(0xc000_0000 | u32::from(machine))
}

/// Joins filters into one, in which a call that one filter allows is passed to the next. Separate filters would cost more: the kernel
/// prepares each filter of a process for all system calls, and evaluates all of them for each call.
fn join(filters: Vec<BpfProgram>) -> BpfProgram {
    let mut filters_left = filters.len();
    let mut joined = BpfProgram::new();
    for filter in filters {
        filters_left -= 1;
        let length = filter.len();
        joined.extend(filter.into_iter().enumerate().map(|(at, step)| {
            let allows = step.code == RETURN && step.k == libc::SECCOMP_RET_ALLOW;
            match u32::try_from(length - at - 1) {
                Ok(distance) if allows && filters_left > 0 => {
                    sock_filter { code: JUMP, k: distance, ..step }
                }
                _ => step,
            }
        }));
    }
    joined
}

/// An instruction that skips the next `jt` or `jf` ones, if it is a conditional jump.
fn step(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The filters, one for each error.
fn build_filters(refusals: Refusals) -> Option<Vec<BpfProgram>> {
    let filters = refusals.into_iter();
    let filters = filters.map(|(rules, errno)| build_filter(rules, errno));
    std::iter::once(Some(x32_filter())).chain(filters).collect()
}

/// A filter that kills programs that make x32 calls, whose numbers filters by number would miss.
fn x32_filter() -> BpfProgram {
    vec![
        step(LOAD, 0, 0, NUMBER_OFFSET),
        step(JUMP_UNLESS_LESS, 0, 1, X32_BIT),
        step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// A filter that refuses the calls with these rules.
pub(super) fn build_filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    errno: libc::c_int,
) -> Option<BpfProgram> {
    let refusal = SeccompAction::Errno(errno as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, refusal, ARCHITECTURE?).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::{
        ARCHITECTURE_OFFSET, JUMP, JUMP_IF_EQUAL, JUMP_UNLESS_LESS, LOAD, NUMBER_OFFSET, RETURN,
        X32_BIT, audit_architecture, build, build_filters,
    };
    use crate::seccomp::{CallAccess, InternetSockets, refusals};
    use seccompiler::sock_filter;

    /// The result of a filter for a call, as the kernel evaluates it, with all arguments set to `argument`.
    fn evaluate(program: &[sock_filter], architecture: u32, number: u32, argument: u32) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let step = &program[at];
            at += 1;
            let holds = match step.code {
                LOAD => {
                    value = match step.k {
                        NUMBER_OFFSET => number,
                        ARCHITECTURE_OFFSET => architecture,
                        // The upper halves of the arguments.
                        offset if offset % 8 == 4 => 0,
                        _ => argument,
                    };
                    continue;
                }
                0x54 => {
                    value &= step.k;
                    continue;
                }
                RETURN => return step.k,
                JUMP => {
                    at += step.k as usize;
                    continue;
                }
                JUMP_IF_EQUAL => value == step.k,
                JUMP_UNLESS_LESS => value >= step.k,
                0x25 => value > step.k,
                code => panic!("unknown instruction {code:#x}"),
            };
            at += usize::from(if holds { step.jt } else { step.jf });
        }
    }

    #[test]
    fn the_program_decides_as_the_filters_do_one_after_another() {
        let ours = audit_architecture().unwrap();
        let internet = [InternetSockets::Nothing, InternetSockets::Own, InternetSockets::OfMachine];
        let accesses = internet.into_iter().flat_map(|internet| {
            [false, true].map(|is_own| CallAccess { internet, local: is_own, traces: is_own })
        });
        for access in accesses {
            let filters = build_filters(refusals(access).unwrap()).unwrap();
            assert_eq!(filters.len(), 5);
            let program = build(refusals(access).unwrap()).unwrap();
            assert!(program.len() < 1500);
            let numbers = (0..600).chain([X32_BIT - 1, X32_BIT, X32_BIT + 41, u32::MAX]);
            let calls = numbers.flat_map(|number| [0, 1, 2, 0o400, 0o4100].map(|it| (number, it)));
            let mut refused = 0;
            for (number, argument) in calls {
                for architecture in [ours, 0x4000_0003] {
                    let results = filters
                        .iter()
                        .map(|filter| evaluate(filter, architecture, number, argument));
                    let is_refused = |result: &u32| *result != libc::SECCOMP_RET_ALLOW;
                    let expected = results.into_iter().find(is_refused);
                    refused += u32::from(expected.is_some());
                    assert_eq!(
                        evaluate(&program, architecture, number, argument),
                        expected.unwrap_or(libc::SECCOMP_RET_ALLOW),
                        "{access:?}: {number} {argument:#o} {architecture:#x}"
                    );
                }
            }
            assert!(refused > 3000, "{refused}");
        }
    }

    /// The number of steps is what the kernel spends on each number when a command starts.
    #[test]
    fn a_call_without_rules_is_allowed_in_a_few_steps() {
        let program = build(refusals(CallAccess::default()).unwrap()).unwrap();
        let read = u32::try_from(libc::SYS_read).unwrap();
        let mut steps = 0;
        let mut at = 0;
        while program[at].code != RETURN {
            let step = &program[at];
            let holds = match (step.code, at) {
                (JUMP_IF_EQUAL, _) => true,
                (JUMP_UNLESS_LESS, _) => read >= step.k,
                _ => false,
            };
            at += 1 + usize::from(if holds { step.jt } else { step.jf });
            steps += 1;
        }
        assert_eq!(program[at].k, libc::SECCOMP_RET_ALLOW);
        assert!(steps < 12, "{steps}");
    }
}
