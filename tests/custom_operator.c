/* com.example::Foo(x) = 2 x + 1 in float32: the smallest library of custom operators that ONNX Runtime loads.
 *
 * No header of ONNX Runtime is needed: its C API is a table of functions that only ever grows at the end ("Size of
 * version 1 API cannot change" is asserted in its source), so places in the table can be written as numbers. Of
 * OrtCustomOp the fields of version 7 are used, and the memory type of inputs, which is asked of every operator.
 */
#include <stddef.h>
#include <stdint.h>

typedef void *Status;
typedef struct { const void *const *(*get_api)(uint32_t version); } ApiBase;

enum { CREATE_DOMAIN = 26, DOMAIN_ADD = 27, ADD_DOMAIN = 28, DATA = 51, DIMENSIONS_COUNT = 61, DIMENSIONS = 62,
       ELEMENTS = 64, TYPE_AND_SHAPE = 65, INPUT = 90, OUTPUT = 91, RELEASE_TYPE_AND_SHAPE = 99 };
enum { FLOAT32 = 1, MAX_RANK = 8 };

static const void *const *api;

typedef struct Op {
  uint32_t version;
  void *(*create_kernel)(const struct Op *, const void *, const void *);
  const char *(*name)(const struct Op *);
  const char *(*provider)(const struct Op *);
  int (*input_type)(const struct Op *, size_t);
  size_t (*input_count)(const struct Op *);
  int (*output_type)(const struct Op *, size_t);
  size_t (*output_count)(const struct Op *);
  void (*compute)(void *, void *);
  void (*destroy)(void *);
  int (*input_kind)(const struct Op *, size_t);
  int (*output_kind)(const struct Op *, size_t);
  int (*input_memory)(const struct Op *, size_t);
  void *later[24]; /* room for the fields of later versions, all of them optional */
} Op;

static void *create_kernel(const Op *op, const void *table, const void *info) { (void)op; (void)table; (void)info; return (void *)1; }
static const char *name(const Op *op) { (void)op; return "Foo"; }
static const char *provider(const Op *op) { (void)op; return NULL; }
static int type_at(const Op *op, size_t index) { (void)op; (void)index; return FLOAT32; }
static size_t one(const Op *op) { (void)op; return 1; }
static int usual(const Op *op, size_t index) { (void)op; (void)index; return 0; } /* required; in the default memory */
static void destroy(void *kernel) { (void)kernel; }

static void compute(void *kernel, void *context) {
  const void *input = NULL;
  void *output = NULL, *shape = NULL;
  float *from = NULL, *to = NULL;
  int64_t dimensions[MAX_RANK];
  size_t rank = 0, count = 0;
  (void)kernel;
  ((Status(*)(const void *, size_t, const void **))api[INPUT])(context, 0, &input);
  ((Status(*)(const void *, void **))api[TYPE_AND_SHAPE])(input, &shape);
  ((Status(*)(const void *, size_t *))api[DIMENSIONS_COUNT])(shape, &rank);
  ((Status(*)(const void *, int64_t *, size_t))api[DIMENSIONS])(shape, dimensions, rank);
  ((Status(*)(const void *, size_t *))api[ELEMENTS])(shape, &count);
  ((void (*)(void *))api[RELEASE_TYPE_AND_SHAPE])(shape);
  ((Status(*)(void *, size_t, const int64_t *, size_t, void **))api[OUTPUT])(context, 0, dimensions, rank, &output);
  ((Status(*)(void *, void **))api[DATA])((void *)input, (void **)&from);
  ((Status(*)(void *, void **))api[DATA])(output, (void **)&to);
  for (size_t i = 0; i < count; i++) to[i] = 2.0f * from[i] + 1.0f;
}

static const Op foo = {7, create_kernel, name, provider, type_at, one, type_at, one, compute, destroy,
                       usual, usual, usual, {NULL}};

Status RegisterCustomOps(void *options, const ApiBase *base) {
  static void *domain = NULL; /* shared by all sessions of the process, and freed with it */
  api = base->get_api(7);
  if (domain == NULL) {
    ((Status(*)(const char *, void **))api[CREATE_DOMAIN])("com.example", &domain);
    ((Status(*)(void *, const void *))api[DOMAIN_ADD])(domain, &foo);
  }
  return ((Status(*)(void *, void *))api[ADD_DOMAIN])(options, domain);
}
