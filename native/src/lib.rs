//! Pure functions of `lockstep.protocol.kernels`. Each has a twin in Python, which is the reference.
use pyo3::prelude::*;

mod json;
mod messages;
mod sends;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<messages::StoredMessage>()?;
    module.add_function(wrap_pyfunction!(messages::decode_into, module)?)?;
    module.add_function(wrap_pyfunction!(sends::plain_sends, module)?)?;
    Ok(())
}
