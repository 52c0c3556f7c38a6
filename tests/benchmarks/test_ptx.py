"""The reader of PTX: what numba-cuda's kernels contain, on programs of a few lines."""

import numpy as np
import pytest

from benchmarks import ptx

CALLING = """
.visible .entry kernel(
	.param .u64 kernel_param_0
)
{
	ld.param.u64 	%rd1, [kernel_param_0];
	ld.global.f64 	%fd1, [%rd1];
	{ // callseq 0, 0
	.param .b64 param0;
	st.param.f64 	[param0+0], %fd1;
	.param .b64 retval0;
	call.uni (retval0),
	larger,
	(
	param0
	);
	ld.param.f64 	%fd2, [retval0+0];
	} // callseq 0
	{ // callseq 1, 0
	.param .b64 param0;
	st.param.f64 	[param0+0], 0d4000000000000000;
	.param .b64 retval0;
	call.uni (retval0),
	larger,
	(
	param0
	);
	ld.param.f64 	%fd3, [retval0+0];
	} // callseq 1
	add.f64 	%fd2, %fd2, %fd3;
	st.global.f64 	[%rd1], %fd2;
	ret;
}
.func  (.param .b64 func_retval0) larger(
	.param .b64 larger_param_0
)
{
	ld.param.f64 	%fd1, [larger_param_0];
	setp.gt.f64 	%p1, %fd1, 0d4014000000000000;
	@%p1 bra 	$L__BB1_2;
	mul.f64 	%fd1, %fd1, 0d4008000000000000;
$L__BB1_2:
	st.param.f64 	[func_retval0+0], %fd1;
	ret;
}
"""


@pytest.mark.parametrize(("x", "result"), [(4.0, 12.0 + 6.0), (7.0, 7.0 + 6.0)])
def test_a_function_that_is_called_twice(x, result):
    """It multiplies numbers up to 5 by 3; its registers are not those of the caller."""
    array, memory = np.array([x]), ptx.WarpMemory()
    done = ptx.run(ptx.PtxProgram(CALLING), memory, [memory.place(array)], 1, 0)
    assert array[0] == result
    assert [done.counts[name] for name in ("setp.gt.f64", "add.f64", "mul.f64")] == [2, 1, 1 + (x == 4.0)]
