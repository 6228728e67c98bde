"""Pictures with objects in them: files of their own, and annotations beside, which a catalogue holds.

===============  ======================================================
``coco``         COCO's JSON: instances, captions, keypoints
``annotations``  its annotations, in some fifty bytes each
``json_stream``  a large JSON object, an element of its lists at a time
``yolo``         YOLO's pictures, with a file of labels each
``yolo_set``     which pictures these are
``yolo_labels``  what a file of labels says
===============  ======================================================
"""
