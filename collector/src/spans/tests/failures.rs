//! Failed calls: which become spans, and their attributes.

use super::*;

fn refused(kind: u16, api: u32, status: u16, at_us: u64, detail: Detail) -> Cell {
    let (start_ticks, duration_ticks) = (at_us * US, US);
    Call { kind, api, status, start_ticks, duration_ticks, detail, ..Call::default() }.to_cell()
}

#[test]
fn failed_calls_are_spans_with_category_advice_and_arguments() {
    let mut feed = SpanFeed::one(Sampling::default());
    let mut records = Vec::new();
    for (id, kind, text) in [
        (20, def::API, "cuMemAlloc_v2"),
        (21, def::API, "cuModuleLoad"),
        (22, def::MODULE, "/models/a.cubin"),
    ] {
        records.push(Definition { kind, id, fields: vec![], text: text.into() });
    }
    records.push(Definition { kind: def::FUNCTION, id: 23, fields: vec![0, 5], text: vec![] });
    feed.0.consume(&Batch::Definitions { process: 0, records });
    let shape = Launch { function: 23, grid: [4, 1, 1], block: [2048, 1, 1], ..Launch::default() };
    let memory = Memory { memory: call::memory::DEVICE, bytes: 5 << 30, ..Memory::default() };
    feed.cells(
        0,
        &[
            refused(kind::LAUNCH, 2, 1, 10, Detail::Launch(shape)),
            refused(kind::ALLOC, 20, 2, 20, Detail::Memory(memory)),
            refused(kind::MODULE, 21, 209, 30, Detail::Module { module: 22, operation: 1 }),
            refused(kind::WAIT, 99, 700, 40, Detail::Wait { what: call::wait::STREAM, handle: 1 }),
        ],
    );
    feed.end(0, 2_000 * US);
    let (spans, _) = feed.finish();
    let launch = named(&spans, "cuda_call: cuLaunchKernel");
    let text = |span: &Span, key: &str| match value(span, key) {
        Some(Value::Text(text)) => text.to_string(),
        other => panic!("{key}: {other:?}"),
    };
    assert_eq!(launch.error.as_deref(), Some("cuLaunchKernel returned CUDA_ERROR_INVALID_VALUE (1)"));
    assert_eq!(text(launch, "gpu.error.category"), "launch");
    assert!(text(launch, "gpu.error.advice").contains("2048 threads"));
    assert_eq!(text(launch, "gpu.kernel"), "gemm");
    assert_eq!(text(launch, "gpu.cuda.block_dim"), "[2048,1,1]");
    assert_eq!(value(launch, "gpu.error.is_sticky"), None);
    let memory = named(&spans, "cuda_memory: cuMemAlloc_v2");
    assert_eq!(text(memory, "error.type"), "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(
        (text(memory, "gpu.error.category"), text(memory, "gpu.memory.kind")),
        ("memory".into(), "device".into())
    );
    assert_eq!(value(memory, "gpu.memory.bytes"), Some(&Value::Number(5 << 30)));
    assert_eq!(text(named(&spans, "cuda_module: cuModuleLoad"), "gpu.module.file"), "/models/a.cubin");
    let lost = named(&spans, "cuda_sync: stream");
    assert_eq!(
        (text(lost, "gpu.error.category"), value(lost, "gpu.error.is_sticky")),
        ("execution".into(), Some(&Value::Flag(true)))
    );
}

#[test]
fn status_codes_that_are_answers_are_no_errors() {
    let mut feed = SpanFeed::one(Sampling { all: true, ..Sampling::default() });
    let texts = [(20, "cuEventQuery"), (21, "cuModuleGetFunction")];
    let records =
        texts.map(|(id, text)| Definition { kind: def::API, id, fields: vec![], text: text.into() });
    feed.0.consume(&Batch::Definitions { process: 0, records: records.into() });
    let look_up = Detail::Other { operation: call::operation::LOOK_UP, value: 0 };
    feed.cells(
        0,
        &[
            refused(kind::CALL, 20, 600, 10, Detail::default()),
            refused(kind::CALL, 21, 500, 20, look_up),
            // A look-up that fails for another reason is a failure.
            refused(kind::CALL, 21, 400, 30, look_up),
        ],
    );
    feed.end(0, 2_000 * US);
    let (spans, _) = feed.finish();
    let errors: Vec<_> = spans.iter().filter_map(|span| span.error.as_deref()).collect();
    assert_eq!(errors, ["cuModuleGetFunction returned CUDA_ERROR_INVALID_HANDLE (400)"]);
}

#[test]
fn calls_that_fail_in_a_lost_context_are_limited_by_the_rate_after_the_first() {
    let mut feed = SpanFeed::one(Sampling { rate: Some(10), ..Sampling::default() });
    let wait = Detail::Wait { what: call::wait::STREAM, handle: 1 };
    let many: Vec<Cell> = (0..100).map(|at| refused(kind::WAIT, 2, 719, 10 + at, wait)).collect();
    feed.cells(0, &many);
    // A call with another error is a span of its own.
    feed.cells(0, &[refused(kind::LAUNCH, 2, 1, 500, Detail::Launch(Launch::default()))]);
    feed.end(0, 2_000 * US);
    let (spans, _) = feed.finish();
    let errors = |error: &str| {
        let of = |span: &&Span| span.error.as_deref().is_some_and(|text| text.contains(error));
        spans.iter().filter(of).count()
    };
    assert_eq!((errors("LAUNCH_FAILED"), errors("INVALID_VALUE")), (11, 1));
    let first = spans.iter().find(|span| span.error.is_some()).map(|span| span.start_ns);
    assert_eq!(first, Some(1_000_000 * MS + 10 * US), "the first is a span");
    let root = named(&spans, "process: python3");
    assert_eq!(value(root, "gputrace.left_out.by_rate"), Some(&Value::Number(89)));
}
