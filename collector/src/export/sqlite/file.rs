//! The format: the rows of each event.

use std::io;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::export::sqlite::calls::CallRows;
use crate::export::sqlite::database::Database;
use crate::export::sqlite::host::Host;
use crate::export::sqlite::schema::{DOMAIN, ENUMERATIONS, EXPORT, EXPORT_ROWS, NVTX, PUSH_POP, START_END};
use crate::export::sqlite::work::Work;
use crate::export::{Destination, Event, Format, Trace};
use crate::model::definitions::Definitions;
use crate::model::instances::RangeInstance;
use crate::names::line_safe;

pub fn open(destination: Destination) -> io::Result<Box<dyn Format>> {
    Ok(Box::new(NsysFile::new(Database::create(&destination.path()?)?)))
}

pub(super) struct NsysFile {
    database: Database,
    host: Host,
    calls: CallRows,
    work: Work,
    /// Pushed ranges that did not end yet, by process and number.
    pushed: FxHashSet<(u32, u32)>,
    /// Numbers of NVTX domains, by process and name; 0 is the default domain.
    domains: FxHashMap<(u32, Box<str>), i64>,
    rows: u64,
}

impl NsysFile {
    pub(super) fn new(database: Database) -> NsysFile {
        NsysFile {
            database,
            host: Host::default(),
            calls: CallRows::default(),
            work: Work::default(),
            pushed: FxHashSet::default(),
            domains: FxHashMap::default(),
            rows: 0,
        }
    }

    fn range(
        &mut self,
        range: &RangeInstance,
        definitions: &Definitions,
        trace: &Trace<'_>,
    ) -> io::Result<()> {
        let process = range.process;
        let (start, end) = self.host.times(trace, process, range.start_ns, range.duration_ns);
        let tid = self.host.thread(process, range.thread, definitions);
        let pushed = self.pushed.remove(&(process, range.number));
        let kind = if pushed { PUSH_POP } else { START_END };
        let (domain, name) = definitions.range(range.range).unwrap_or(("", "(unknown range)"));
        let domain = self.domain(process, domain, start, tid)?;
        let end = range.is_whole.then_some(end);
        self.nvtx(start, end, kind, name, tid, domain)
    }

    /// The number of a domain, with its row if it is new.
    fn domain(&mut self, process: u32, domain: &str, start: i64, tid: i64) -> io::Result<i64> {
        if domain.is_empty() {
            return Ok(0);
        }
        let key = (process, domain.into());
        if let Some(known) = self.domains.get(&key) {
            return Ok(*known);
        }
        let number = self.domains.len() as i64 + 1;
        self.domains.insert(key, number);
        self.nvtx(start, None, DOMAIN, domain, tid, number)?;
        Ok(number)
    }

    fn nvtx(
        &mut self,
        start: i64,
        end: Option<i64>,
        kind: i64,
        text: &str,
        tid: i64,
        domain: i64,
    ) -> io::Result<()> {
        let text = line_safe(text);
        let row = rusqlite::named_params! {
            ":start": start,
            ":end": end,
            ":eventType": kind,
            ":text": text.as_ref(),
            ":globalTid": tid,
            ":domainId": domain,
        };
        self.database.add(&NVTX, row)
    }
}

impl Format for NsysFile {
    fn begin(&mut self, trace: &mut Trace<'_>) -> io::Result<()> {
        for (name, rows) in ENUMERATIONS {
            let columns = "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT";
            self.database.execute(&format!("CREATE TABLE {name} ({columns})"))?;
            for (id, value, label) in rows {
                self.database.execute(&format!("INSERT INTO {name} VALUES ({id}, '{value}', '{label}')"))?;
            }
        }
        for row in EXPORT_ROWS {
            self.database.add(&EXPORT, row)?;
        }
        self.host.begin(&mut self.database, trace)
    }

    fn event(&mut self, event: Event<'_>, trace: &mut Trace<'_>) -> io::Result<()> {
        let file = (&mut self.database, &mut self.host);
        match event {
            Event::ProcessBegins { number, process, session } => {
                self.host.process_begins(number, process.pid, session);
                return Ok(());
            }
            Event::Call(call, definitions) => self.calls.add(call, definitions, file, trace)?,
            Event::Operation(operation, definitions) => {
                if !self.work.add(operation, definitions, file, trace)? {
                    return Ok(());
                }
            }
            Event::RangeBegins(range, _) => {
                self.pushed.insert((range.process, range.number));
                return Ok(());
            }
            Event::Range(range, definitions) => self.range(range, definitions, trace)?,
            _ => return Ok(()),
        }
        self.rows += 1;
        Ok(())
    }

    fn finish(&mut self, trace: &mut Trace<'_>) -> io::Result<u64> {
        self.work.finish(&mut self.database, &self.host, trace)?;
        self.host.finish(&mut self.database, trace)?;
        self.database.complete()?;
        Ok(self.rows)
    }
}
