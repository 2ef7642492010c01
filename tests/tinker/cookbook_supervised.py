"""The supervised loop of tinker-cookbook on a file of chats: cookbook_supervised.py URL MODEL CHATS FOLDER.

A script for the Python of the cookbook, which has no agentrl.
"""

import asyncio
import sys

from tinker_cookbook.renderers import TrainOnWhat
from tinker_cookbook.supervised import train
from tinker_cookbook.supervised.data import FromConversationFileBuilder
from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig

if __name__ == "__main__":
    url, model, chats, folder = sys.argv[1:]
    common = ChatDatasetBuilderCommonConfig(
        model_name_for_tokenizer=model,
        renderer_name="role_colon",
        max_length=256,
        batch_size=4,
        train_on_what=TrainOnWhat.ALL_ASSISTANT_MESSAGES,
    )
    config = train.Config(
        log_path=folder,
        model_name=model,
        recipe_name="chats",
        renderer_name="role_colon",
        dataset_builder=FromConversationFileBuilder(common_config=common, file_path=chats),
        learning_rate=1e-2,
        lr_schedule="constant",
        num_epochs=1,
        lora_rank=8,
        base_url=url,
        save_every=2,
        eval_every=0,
        infrequent_eval_every=0,
    )
    asyncio.run(train.main(config))
