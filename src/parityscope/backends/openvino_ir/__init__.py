"""An OpenVINO IR (`.xml` and `.bin`) as ONNX: what a candidate computes, in the words that its reference is written in.

`reading` gives every value a name, `operators` and `bodies` say each operator in those of ONNX, `writing` writes them, and
`translating` keeps the file. What has no translation is a node that nothing runs (`case.mending.UNREAD`): the comparison of
graphs pairs it by structure, and goes on around it.
"""
