# libstarling_objects: named versions of data, with the transfer engine and its public functions.
starling_installed_library(starling_objects starling-objects sl_objects starling_objects.h)
