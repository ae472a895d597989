//! The collector that nobody sees: not even a wait for any child, which is why its test needs a
//! process without other children.

use std::ptr;

use gputrace_producer::collector_process::start;
use gputrace_producer::socket::Received;

use crate::alone::alone;

#[test]
fn child_gets_the_socket_and_nobody_sees_it() {
    alone("collector::child_gets_the_socket_and_nobody_sees_it", || {
        // A shell that sends one message head back over descriptor 3.
        let script = c"printf 'GTS1\\1\\0\\1\\0\\20\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0' >&3";
        let arguments = [c"sh".as_ptr(), c"-c".as_ptr(), script.as_ptr(), ptr::null()];
        let environment = [ptr::null()];
        // SAFETY: both arrays are null-terminated and outlive the call.
        let socket = unsafe { start(c"/bin/sh", arguments.as_ptr(), environment.as_ptr()) }.unwrap();
        let mut packet = [0; 128];
        match socket.receive(5_000, &mut packet) {
            Received::Message(head, _) => assert_eq!(head.kind, 16),
            other => panic!("{other:?}"),
        }
        assert!(matches!(socket.receive(5_000, &mut packet), Received::Gone));
        // SAFETY: asks whether this process has any child; it has none that wait can see.
        assert_eq!(unsafe { libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG) }, -1);
        socket.close();
    });
}

#[test]
fn child_does_not_inherit_a_real_time_class() {
    alone("collector::child_does_not_inherit_a_real_time_class", || {
        let parameters = libc::sched_param { sched_priority: 1 };
        // SAFETY: a live parameter; 0 is the calling thread.
        if unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters) } != 0 {
            return eprintln!("SKIPPED: no real-time class is to be had");
        }
        // The message's kind is 16 and the class: field 41 of the shell's own line.
        let script = c"set -- $(cat /proc/$$/stat); shift 40; printf \"GTS1\\1\\0\\1\\0\\2$1\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\" >&3";
        let arguments = [c"sh".as_ptr(), c"-c".as_ptr(), script.as_ptr(), ptr::null()];
        let environment = [ptr::null()];
        // SAFETY: both arrays are null-terminated and outlive the call.
        let socket = unsafe { start(c"/bin/sh", arguments.as_ptr(), environment.as_ptr()) }.unwrap();
        let mut packet = [0; 128];
        match socket.receive(60_000, &mut packet) {
            Received::Message(head, _) => assert_eq!(head.kind, 16, "16 and the class, 2 of round robin"),
            other => panic!("{other:?}"),
        }
        socket.close();
    });
}
