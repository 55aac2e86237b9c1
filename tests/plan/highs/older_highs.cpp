// A library with the functions of HiGHS that Spillway looks for, which says that it is version 1.2.

#define SPILLWAY_UNUSED(name) \
  extern "C" int name() { return 0; }

extern "C" int Highs_versionMajor() { return 1; }
extern "C" int Highs_versionMinor() { return 2; }
SPILLWAY_UNUSED(Highs_getSizeofHighsInt)
SPILLWAY_UNUSED(Highs_create)
SPILLWAY_UNUSED(Highs_destroy)
SPILLWAY_UNUSED(Highs_setBoolOptionValue)
SPILLWAY_UNUSED(Highs_setIntOptionValue)
SPILLWAY_UNUSED(Highs_setStringOptionValue)
SPILLWAY_UNUSED(Highs_passMip)
SPILLWAY_UNUSED(Highs_setBasis)
SPILLWAY_UNUSED(Highs_getBasis)
SPILLWAY_UNUSED(Highs_changeColBounds)
SPILLWAY_UNUSED(Highs_run)
SPILLWAY_UNUSED(Highs_getModelStatus)
SPILLWAY_UNUSED(Highs_getIntInfoValue)
SPILLWAY_UNUSED(Highs_getDoubleInfoValue)
SPILLWAY_UNUSED(Highs_getSolution)
