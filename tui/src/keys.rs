//! What keys do: each changes the view, or asks the caller for something.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::scene::Scene;
use crate::view::{Pending, ProcessOrder, Tab, View};

/// Longer filters are of no use on a screen.
const FILTER_LETTERS_MAX: usize = 60;

/// How many rows PageUp and PageDown move.
const PAGE_ROWS: isize = 10;

/// What the caller does after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Nothing,
    Quit,
    /// Stop this process, and the program behind the screen if there is one, until the shell continues them.
    Stop,
    /// Give this control character to the program behind the screen.
    Pass(u8),
    /// Send a signal to a process; the user confirmed it.
    Signal(Pending),
}

/// The keys that help lists, and what each does.
pub const HELP: [(&str, &str); 12] = [
    ("q, Ctrl-C", "leave; Ctrl-Z stops it until fg"),
    ("h, ?", "this page"),
    ("Tab, 1 to 6", "the next table, or that one; Shift-Tab: the one before"),
    ("Left, Right", "another device"),
    ("Up, Down", "select a row; j and k do the same"),
    ("PageUp, Home", "select a row far up or at the top; PageDown and End: down"),
    ("n", "the next traced session"),
    ("s", "sort processes by memory, utilisation, pid, command"),
    ("/", "show only rows that contain a text; Esc shows all"),
    ("p, Space", "pause: the screen keeps what it shows"),
    ("t", "end the selected process: SIGTERM, after y"),
    ("K", "kill the selected process: SIGKILL, after y"),
];

/// What stands in place of the first line of [`HELP`] while a program runs behind the screen.
pub const PROGRAM_HELP: (&str, &str) =
    ("q, Ctrl-C", "q: show the program's output; Ctrl-C, -\\, -D and -Z are the program's");

/// Control keys whose byte goes to the program. Ctrl-\ comes as the byte 0x1c, which is read as Ctrl-4.
const PASSED: [(char, u8); 4] = [('c', 0x03), ('d', 0x04), ('4', 0x1c), ('\\', 0x1c)];

/// Handles one key.
pub fn key(event: KeyEvent, view: &mut View, scene: &Scene) -> Action {
    if event.kind == KeyEventKind::Release {
        return Action::Nothing;
    }
    if view.is_of_program
        && event.modifiers.contains(KeyModifiers::CONTROL)
        && let Some((_, byte)) = PASSED.iter().find(|(letter, _)| event.code == KeyCode::Char(*letter))
    {
        return Action::Pass(*byte);
    }
    if event.code == KeyCode::Char('c') && event.modifiers.contains(KeyModifiers::CONTROL) {
        return Action::Quit;
    }
    if event.code == KeyCode::Char('z') && event.modifiers.contains(KeyModifiers::CONTROL) {
        return Action::Stop;
    }
    view.message.clear();
    if view.edits_filter {
        edit_filter(event.code, view);
        view.fit(scene);
        return Action::Nothing;
    }
    if let Some(pending) = view.pending.take() {
        if event.code == KeyCode::Char('y') {
            return Action::Signal(pending);
        }
        view.message = "no signal was sent".to_owned();
        return Action::Nothing;
    }
    match event.code {
        KeyCode::Char('q') => return Action::Quit,
        KeyCode::Char('h' | '?') => view.shows_help = !view.shows_help,
        KeyCode::Esc if view.shows_help => view.shows_help = false,
        KeyCode::Esc => view.filter.clear(),
        KeyCode::Tab => view.turn_to(after(&Tab::ALL, view.tab)),
        KeyCode::BackTab => {
            let before = (1..Tab::ALL.len()).fold(view.tab, |tab, _| after(&Tab::ALL, tab));
            view.turn_to(before);
        }
        KeyCode::Char(digit @ '1'..='6') => {
            let index = digit.to_digit(10).map_or(0, |digit| digit as usize - 1);
            view.turn_to(Tab::ALL.get(index).copied().unwrap_or_default());
        }
        KeyCode::Left => view.device = view.device.saturating_sub(1),
        KeyCode::Right => view.device += 1,
        KeyCode::Up | KeyCode::Char('k') => view.step(-1, scene),
        KeyCode::Down | KeyCode::Char('j') => view.step(1, scene),
        KeyCode::PageUp => view.step(-PAGE_ROWS, scene),
        KeyCode::PageDown => view.step(PAGE_ROWS, scene),
        KeyCode::Home => view.step(isize::MIN, scene),
        KeyCode::End => view.step(isize::MAX, scene),
        KeyCode::Char('n') => next_session(view, scene),
        KeyCode::Char('s') => view.order = after(&ProcessOrder::ALL, view.order),
        KeyCode::Char('/') => view.edits_filter = true,
        KeyCode::Char('p' | ' ') => view.is_paused = !view.is_paused,
        KeyCode::Char('t') => ask(view, scene, libc::SIGTERM),
        KeyCode::Char('K') => ask(view, scene, libc::SIGKILL),
        _ => {}
    }
    view.fit(scene);
    Action::Nothing
}

fn next_session(view: &mut View, scene: &Scene) {
    (view.session, view.row) = ((view.session + 1) % scene.sessions.len().max(1), 0);
    if view.tab == Tab::Processes && !scene.sessions.is_empty() {
        view.turn_to(Tab::Kernels);
    }
}

fn edit_filter(code: KeyCode, view: &mut View) {
    match code {
        KeyCode::Enter => view.edits_filter = false,
        KeyCode::Esc => {
            view.edits_filter = false;
            view.filter.clear();
        }
        KeyCode::Backspace => drop(view.filter.pop()),
        KeyCode::Char(letter) if view.filter.chars().count() < FILTER_LETTERS_MAX => view.filter.push(letter),
        _ => {}
    }
}

/// Asks whether the selected process is to get the signal. Refuses a pid that is the host's: inside of this
/// container it names another process.
fn ask(view: &mut View, scene: &Scene, signal: i32) {
    if view.tab != Tab::Processes {
        view.message = "select a process first: key 1".to_owned();
        return;
    }
    let Some(row) = view.processes(scene).get(view.selected).copied() else {
        view.message = "no process is selected".to_owned();
        return;
    };
    if row.is_host_pid {
        view.message = format!("process {} is outside this container and cannot be signalled here", row.pid);
        return;
    }
    view.pending = Some(Pending { pid: row.pid, signal });
}

fn after<T: Copy + PartialEq>(all: &[T], now: T) -> T {
    let index = all.iter().position(|one| *one == now).map_or(0, |at| at + 1);
    all.get(index % all.len().max(1)).copied().unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::ProcessRow;

    fn scene() -> Scene {
        let row = |pid, is_host_pid| ProcessRow {
            pid,
            is_host_pid,
            device: 0,
            user: None,
            command: None,
            memory: None,
            gpu_percent: None,
            allocations: None,
            is_traced: Some(false),
        };
        Scene { processes: vec![row(10, false), row(20, true)], ..Scene::default() }
    }

    fn press(keys: &str, view: &mut View) -> Action {
        let scene = scene();
        keys.chars().fold(Action::Nothing, |_, letter| {
            let code = match letter {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                '\t' => KeyCode::Tab,
                'v' => KeyCode::Down,
                '<' => KeyCode::Backspace,
                letter => KeyCode::Char(letter),
            };
            key(KeyEvent::from(code), view, &scene)
        })
    }

    #[test]
    fn signal_is_sent_only_after_a_second_key() {
        let mut view = View::default();
        assert_eq!(press("t", &mut view), Action::Nothing);
        assert_eq!(press("n", &mut view), Action::Nothing);
        assert_eq!(view.message, "no signal was sent");
        assert_eq!(press("ty", &mut view), Action::Signal(Pending { pid: 10, signal: libc::SIGTERM }));
        assert_eq!(press("Ky", &mut view), Action::Signal(Pending { pid: 10, signal: libc::SIGKILL }));
        assert_eq!(press("y", &mut view), Action::Nothing);
    }

    #[test]
    fn process_outside_of_a_container_is_not_signalled() {
        let mut view = View::default();
        assert_eq!(press("vty", &mut view), Action::Nothing);
        assert!(view.pending.is_none());
    }

    #[test]
    fn signal_needs_the_table_of_processes() {
        let mut view = View::default();
        assert_eq!(press("2ty", &mut view), Action::Nothing);
        assert_eq!(press("1ty", &mut view), Action::Signal(Pending { pid: 10, signal: libc::SIGTERM }));
    }

    #[test]
    fn filter_takes_letters_that_are_keys_elsewhere() {
        let mut view = View::default();
        assert_eq!(press("/qpx<\n", &mut view), Action::Nothing);
        assert_eq!((view.filter.as_str(), view.edits_filter, view.is_paused), ("qp", false, false));
        press("\x1b", &mut view);
        assert_eq!(view.filter, "");
    }

    #[test]
    fn tables_follow_each_other_and_have_numbers() {
        let mut view = View::default();
        press("\t\t", &mut view);
        assert_eq!(view.tab, Tab::Lines);
        press("\t\t\t\t", &mut view);
        assert_eq!(view.tab, Tab::Processes);
        press("6", &mut view);
        assert_eq!(view.tab, Tab::Memory);
        press("5", &mut view);
        assert_eq!(view.tab, Tab::Copies);
    }

    #[test]
    fn release_of_a_key_does_nothing_and_control_c_leaves() {
        let mut view = View::default();
        let mut release = KeyEvent::from(KeyCode::Char('q'));
        release.kind = KeyEventKind::Release;
        assert_eq!(key(release, &mut view, &scene()), Action::Nothing);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        view.edits_filter = true;
        assert_eq!(key(interrupt, &mut view, &scene()), Action::Quit);
    }

    #[test]
    fn keys_for_signals_are_the_programs_that_runs_behind_the_screen() {
        let mut view = View { is_of_program: true, ..View::default() };
        for (letter, byte) in [('c', 3), ('d', 4), ('4', 0x1c)] {
            let pressed = KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
            assert_eq!(key(pressed, &mut view, &scene()), Action::Pass(byte), "{letter}");
        }
        let stop = KeyEvent::new(KeyCode::Char('z'), KeyModifiers::CONTROL);
        assert_eq!((key(stop, &mut view, &scene()), press("q", &mut view)), (Action::Stop, Action::Quit));
        assert_eq!(press("d", &mut view), Action::Nothing);
    }
}
