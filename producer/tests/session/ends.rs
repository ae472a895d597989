//! How a session ends, and what it says last.

use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use gputrace_producer::session::{self, StartError};
use gputrace_producer::{early_calls, service, stderr};
use gputrace_wire::atomic::Ordering;
use gputrace_wire::counter::Counter;
use gputrace_wire::handshake::{bye, kind};
use gputrace_wire::segment::state;

use crate::alone::{alone, holdings};
use crate::peer::{Peer, begin, pair};

#[test]
fn hand_over_that_nobody_takes_leaves_nothing_behind() {
    alone("ends::hand_over_that_nobody_takes_leaves_nothing_behind", || {
        let before = holdings();
        let (ours, theirs) = pair();
        // SAFETY: the test's own descriptor.
        unsafe { libc::close(theirs) };
        let started = session::start(session::claim().unwrap(), ours, b"test", |_| ());
        assert_eq!(started.err(), Some(StartError::HandOver));
        assert_eq!(holdings(), before);
        assert!(session::claim().is_none());
    });
}

#[test]
fn abandoned_session_says_bye() {
    alone("ends::abandoned_session_says_bye", || {
        let (session, peer) = begin();
        session.abandon();
        assert!(session::current().is_none());
        let (head, _) = peer.hear().unwrap();
        assert_eq!((head.kind, head.value), (kind::BYE, bye::STOPPED));
        assert!(peer.hear().is_none(), "and hangs up");
    });
}

#[test]
fn good_bye_is_whole_once_the_service_thread_stopped() {
    alone("ends::good_bye_is_whole_once_the_service_thread_stopped", || {
        let (session, peer) = begin();
        service::start(session, |_| ());
        std::thread::sleep(Duration::from_millis(20));
        static TAKEN: AtomicBool = AtomicBool::new(false);
        assert!(service::stop(|_| TAKEN.store(true, Ordering::Release), || true));
        assert!(TAKEN.load(Ordering::Acquire), "its last turn was not taken");
        session.say_bye(bye::EXIT);
        assert_eq!(peer.header().state.load(Ordering::Acquire), state::ENDED);
        assert!(!service::stop(|_| (), || true), "nobody is there any more");
    });
}

#[test]
fn request_is_answered_after_the_turn_that_brought_it() {
    alone("ends::request_is_answered_after_the_turn_that_brought_it", || {
        let (session, peer) = begin();
        static SEEN: AtomicBool = AtomicBool::new(false);
        service::start(session, |session| {
            if session.is_flush_asked() {
                SEEN.store(true, Ordering::Release);
            }
        });
        let control = peer.control();
        control.flush.fetch_add(1, Ordering::Release);
        let deadline = Instant::now() + Duration::from_secs(60);
        while control.flushed.load(Ordering::Acquire) != 1 {
            assert!(Instant::now() < deadline, "nobody answers");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(SEEN.load(Ordering::Acquire), "no turn knew that it was asked");
        assert!(!session.is_flush_asked());
        assert!(service::stop(|_| (), || true));
    });
}

#[test]
fn service_thread_that_does_not_stop_is_not_called_done() {
    alone("ends::service_thread_that_does_not_stop_is_not_called_done", || {
        let (session, peer) = begin();
        service::start(session, |_| std::thread::sleep(Duration::from_secs(30)));
        std::thread::sleep(Duration::from_millis(20));
        let mut looks = 0;
        let patient = || {
            looks += 1;
            looks < 10
        };
        assert!(service::stop(|_| (), patient));
        session.say_bye(bye::EXIT);
        assert_eq!(peer.hear().unwrap().0.kind, kind::BYE);
        assert_eq!(peer.header().state.load(Ordering::Acquire), state::RUNNING);
    });
}

#[test]
fn line_goes_to_standard_error_and_to_nothing_that_took_its_number() {
    alone("ends::line_goes_to_standard_error_and_to_nothing_that_took_its_number", || {
        let file = |name: &str| {
            let path = std::env::temp_dir().join(format!("gputrace-{name}-{}", std::process::id()));
            let file = std::fs::File::create(&path).unwrap();
            (path, file)
        };
        let ((log, error), (data, other)) = (file("error"), file("other"));
        // SAFETY: the process is this test's alone.
        assert_eq!(unsafe { libc::dup2(error.as_raw_fd(), 2) }, 2);
        stderr::remember();
        stderr::line(&[b"one"]);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), 2) }, 2);
        stderr::line(&[b"two"]);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::dup2(error.as_raw_fd(), 2) }, 2);
        stderr::line(&[b"three"]);
        let read = |path| {
            let text = std::fs::read_to_string(path).unwrap();
            std::fs::remove_file(path).unwrap();
            text
        };
        let (log, data) = (read(&log), read(&data));
        assert_eq!(log, "gputrace: one\ngputrace: three\n");
        assert_eq!(data, "");
    });
}

#[test]
fn calls_before_the_session_is_published_are_counted_as_lost() {
    alone("ends::calls_before_the_session_is_published_are_counted_as_lost", || {
        let (ours, theirs) = pair();
        let claim = session::claim().unwrap();
        assert!(session::is_starting(), "claimed and not published");
        early_calls::count();
        let session = session::start(claim, ours, b"test", |_| early_calls::count()).unwrap();
        assert!(!session::is_starting());
        let peer = Peer::new(theirs);
        session.add_early_calls();
        // One that was under way as the session was published is added at its end.
        early_calls::count();
        session.say_bye(bye::EXIT);
        assert_eq!(peer.counter(Counter::BeforeSession), 3);
    });
}
