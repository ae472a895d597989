//! Rotel, a receiver of OTLP that others wrote, from PyPI.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::back_end::{BackEnd, nobody};
use super::folder::{self, Folder};
use super::session::eventually;

/// A receiver of somebody else's, which hands on to one of ours what it read; killed at its end.
pub struct Rotel {
    process: Child,
    folder: Folder,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
}

impl Rotel {
    pub fn start(agent: &Path, hands_on_to: &BackEnd) -> Rotel {
        let (folder, grpc, http) = (Folder::new(), nobody(), nobody());
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new(agent);
        command.args([
            "start",
            "--otlp-grpc-endpoint",
            &grpc.to_string(),
            "--otlp-http-endpoint",
            &http.to_string(),
        ]);
        command.args([
            "--exporter",
            "otlp",
            "--otlp-exporter-protocol",
            "http",
            "--otlp-exporter-compression",
            "none",
        ]);
        command.args(["--otlp-exporter-endpoint", &hands_on_to.url(), "--batch-timeout", "50ms"]);
        command.arg("--pid-file").arg(folder.join("pid"));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let process = command.spawn().unwrap();
        let rotel = Rotel { process, folder, grpc, http };
        eventually("rotel listens", || {
            let listens = |at: SocketAddr| TcpStream::connect(at).is_ok();
            (listens(rotel.grpc) && listens(rotel.http)).then_some(())
        });
        rotel
    }
}

impl Drop for Rotel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.folder.join("log")).unwrap_or_default());
        }
    }
}

/// Its agent, from PyPI; or why there is none.
pub fn installed() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/rotel");
    let made =
        Command::new(script).arg(folder::base().join("rotel")).output().map_err(|error| error.to_string())?;
    if made.status.success() {
        return Ok(String::from_utf8_lossy(&made.stdout).trim().into());
    }
    let said = String::from_utf8_lossy(&made.stderr);
    Err(format!("scripts/rotel: {}", said.trim().lines().next_back().unwrap_or_default()))
}
