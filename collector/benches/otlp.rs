//! What a span costs on its way to a back end: handing it over, on the digest thread, and encoding it, on the
//! sender's. The back end is away, so that the queue is full and its oldest go.

use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gputrace_collector::model::definitions::Definitions;
use gputrace_collector::otlp::{Asked, Config, Exporter, OnFull};
use gputrace_collector::spans::{Naming, Receiver, Span, SpanBatcher, Value};

const SPANS: u64 = 2000;

/// A kernel's: as many attributes as it has, and a name as templates make them.
fn span(id: u64, name: &Arc<str>) -> Span {
    let mut attributes = vec![
        ("gpu.backend", Value::text("cuda")),
        ("gpu.kernel", Value::Text(name.clone())),
        ("gpu.cuda.grid_dim", Value::text("[128,1,1]")),
        ("gpu.cuda.block_dim", Value::text("[256,1,1]")),
        ("gpu.launch.api", Value::text("cuLaunchKernel")),
        ("cuda.device.uuid", Value::text("01234567-89ab-cdef-0123-456789abcdef")),
        ("thread.name", Value::text("main")),
        ("gpu.is_slow", Value::Flag(true)),
        ("gpu.duration_us", Value::Real(123.4)),
    ];
    let numbers =
        ["thread.id", "gpu.cuda.device_id", "gpu.cuda.context_id", "gpu.cuda.stream_id", "gpu.cuda.sm_count"];
    attributes.extend(numbers.map(|key| (key, Value::Number(7))));
    Span {
        process: 0,
        trace_id: 7,
        id,
        parent: 1,
        parent_is_remote: false,
        flags: 1,
        trace_state: "".into(),
        name: "cuda_kernel: gemm".to_owned(),
        start_ns: 1,
        end_ns: 2,
        attributes,
        events: Vec::new(),
        error: None,
    }
}

fn otlp(criterion: &mut Criterion) {
    let name: Arc<str> = "void cutlass::Kernel2<gemm>".repeat(8).into();
    let spans = || (1..=SPANS).map(|id| span(id, &name)).collect::<Vec<_>>();
    let definitions = Definitions::default();
    let config = Config::new(&Asked::Url("http://127.0.0.1:9".to_owned()), |_| None).unwrap();
    // Nobody asks the source: what is held stays until it is flushed.
    let (live, _source) = SpanBatcher::new(Naming::default(), OnFull::DropsOldest);
    let exporter = Exporter::start(config, Vec::new(), Arc::new(|_| {}), None).unwrap();
    let live = std::cell::RefCell::new(live.send_by(exporter.sender()));
    let mut group = criterion.benchmark_group("otlp");
    group.throughput(Throughput::Elements(SPANS)).measurement_time(Duration::from_secs(5)).sample_size(30);
    group.bench_function("hand_over", |bencher| {
        bencher.iter_batched(
            || {
                live.borrow().flush();
                spans()
            },
            |spans| {
                let mut live = live.borrow_mut();
                spans.into_iter().for_each(|span| live.span(span, &definitions));
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("encode_and_queue", |bencher| {
        bencher.iter_batched(
            || spans().into_iter().for_each(|span| live.borrow_mut().span(span, &definitions)),
            |()| live.borrow().flush(),
            BatchSize::PerIteration,
        );
    });
    group.finish();
    drop(live);
    exporter.finish(Duration::ZERO);
}

criterion_group!(benches, otlp);
criterion_main!(benches);
