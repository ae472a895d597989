//! Several sinks as one: the model feeds exactly one, statically known.

use crate::model::definitions::Definitions;
use crate::model::operation::{HostCall, Operation, Sink};

impl Sink for () {
    fn host_call(&mut self, _: &HostCall, _: &Definitions) {}
    fn operation(&mut self, _: &Operation, _: &Definitions) {}
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        (**self).host_call(call, definitions);
    }
    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        (**self).operation(operation, definitions);
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        (**self).host_call(call, definitions);
    }
    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        (**self).operation(operation, definitions);
    }
}

impl<S: Sink> Sink for Vec<S> {
    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        self.iter_mut().for_each(|sink| sink.host_call(call, definitions));
    }
    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        self.iter_mut().for_each(|sink| sink.operation(operation, definitions));
    }
}

impl<S: Sink> Sink for Option<S> {
    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        self.iter_mut().for_each(|sink| sink.host_call(call, definitions));
    }
    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        self.iter_mut().for_each(|sink| sink.operation(operation, definitions));
    }
}

impl<A: Sink, B: Sink> Sink for (A, B) {
    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        self.0.host_call(call, definitions);
        self.1.host_call(call, definitions);
    }
    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        self.0.operation(operation, definitions);
        self.1.operation(operation, definitions);
    }
}

impl<A: Sink, B: Sink, C: Sink> Sink for (A, B, C) {
    fn host_call(&mut self, call: &HostCall, definitions: &Definitions) {
        self.0.host_call(call, definitions);
        self.1.host_call(call, definitions);
        self.2.host_call(call, definitions);
    }
    fn operation(&mut self, operation: &Operation, definitions: &Definitions) {
        self.0.operation(operation, definitions);
        self.1.operation(operation, definitions);
        self.2.operation(operation, definitions);
    }
}
