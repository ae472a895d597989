//! A thread's native frames, from the innermost out.

use super::rule::{Kind, OWN, Rule, SavedBp};

/// Frames of one walk, the tracer's own included.
pub const FRAMES_MAX: usize = 256;
/// How many nested signal handlers are followed.
const SIGNALS_MAX: u32 = 4;

/// Where the kernel stores the interrupted registers, from the stack pointer on return from the handler: in
/// a `ucontext_t`, after 40 bytes.
const INTERRUPTED_BP: u64 = 40 + 10 * 8;
const INTERRUPTED_SP: u64 = 40 + 15 * 8;
const INTERRUPTED_PC: u64 = 40 + 16 * 8;

/// The registers that identify a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    /// Where the frame continues: after the call that it makes.
    pub pc: u64,
    pub sp: u64,
    pub bp: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    pub pc: u64,
    pub rule: Rule,
    /// The end of the frame, above it. For the last frame of a walk, its beginning.
    pub end: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The thread's first frame was reached.
    Outermost,
    /// There are more frames than are followed.
    Cut,
    /// No rule leads to the caller.
    Lost,
}

/// The stack that is walked.
pub trait Words {
    /// The word at that address, if it is on the stack and can be read.
    fn word(&mut self, at: u64) -> Option<u64>;
    /// Announces that the stack below `end` is live: it contains the tracer's own frames, of which the hook
    /// is the outermost.
    fn lives_up_to(&mut self, end: u64);
    /// The walk continues at `sp`, which may be on another stack; false if nothing is known of that stack.
    fn go_on_at(&mut self, sp: u64) -> bool;
}

/// Calls `each` with every frame, innermost first. `rule` returns the rule for a code address.
#[inline(always)]
pub fn walk<S: Words>(
    stack: &mut S,
    from: Registers,
    mut rule: impl FnMut(u64) -> Rule,
    mut each: impl FnMut(Frame),
) -> End {
    let Registers { mut pc, mut sp, mut bp } = from;
    let (mut signals, mut is_own) = (0, true);
    for _ in 0..FRAMES_MAX {
        let rule = rule(pc);
        is_own &= rule.has(OWN);
        let offset = rule.cfa_offset();
        let cfa = match rule.kind() {
            Kind::Sp => Some(sp.wrapping_add_signed(offset)),
            Kind::Bp => Some(bp.wrapping_add_signed(offset)),
            Kind::AtBp => stack.word(bp.wrapping_add_signed(offset)),
            Kind::Unknown => None,
            Kind::Outermost => {
                each(Frame { pc, rule, end: sp });
                return End::Outermost;
            }
            Kind::Signal => {
                each(Frame { pc, rule, end: sp });
                signals += 1;
                let interrupted = [INTERRUPTED_PC, INTERRUPTED_SP, INTERRUPTED_BP];
                let [Some(to_pc), Some(to_sp), Some(to_bp)] =
                    interrupted.map(|at| stack.word(sp.wrapping_add(at)))
                else {
                    return End::Lost;
                };
                if signals > SIGNALS_MAX || !stack.go_on_at(to_sp) {
                    return End::Lost;
                }
                // As if the interrupted instruction were a call: the frame must name it, and not the
                // instruction before it.
                (pc, sp, bp) = (to_pc.wrapping_add(1), to_sp, to_bp);
                continue;
            }
        };
        let Some(cfa) = cfa.filter(|cfa| *cfa > sp && cfa & 7 == 0) else {
            each(Frame { pc, rule, end: sp });
            return End::Lost;
        };
        each(Frame { pc, rule, end: cfa });
        if is_own {
            stack.lives_up_to(cfa);
        }
        let Some(returns_to) = stack.word(cfa - 8) else { return End::Lost };
        let saved = match rule.saved_bp() {
            SavedBp::Unchanged => Some(bp),
            SavedBp::FromCfa(offset) => stack.word(cfa.wrapping_add_signed(offset)),
            SavedBp::AtBp => stack.word(bp),
        };
        let Some(saved) = saved else { return End::Lost };
        // On a stack that was made by hand, the first function returns to 0.
        if returns_to == 0 {
            return End::Outermost;
        }
        (pc, sp, bp) = (returns_to, cfa, saved);
    }
    End::Cut
}
